// SPDX-License-Identifier: GPL-2.0
#include "top_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "clock.h"

static enum nt_exit open_own(struct nt_top_source *source, const struct nt_options *opts,
			     uint64_t interval_ns, struct nt_top_data *data, char *err,
			     size_t err_size)
{
	source->own = true;
	source->trace = calloc(1, sizeof(*source->trace));
	if (!source->trace) {
		snprintf(err, err_size, "cannot start: %s", strerror(ENOMEM));
		return NT_EXIT_FAILED;
	}
	return nt_top_own_open(source->trace, opts, interval_ns, data, err, err_size);
}

enum nt_exit nt_top_source_open(struct nt_top_source *source, const struct nt_options *opts,
				uint64_t interval_ns, struct nt_top_data *data, char *err,
				size_t err_size)
{
	enum nt_exit code;
	char why[400];
	int cause;

	memset(source, 0, sizeof(*source));
	source->daemon.fd = -1;
	if (opts->traces_itself)
		return open_own(source, opts, interval_ns, data, err, err_size);
	cause = nt_top_daemon_open(&source->daemon, opts->socket, interval_ns, data, nt_now_ns());
	if (!cause)
		return NT_EXIT_OK;
	nt_client_explain(opts->socket, -cause, why, sizeof(why));
	code = open_own(source, opts, interval_ns, data, err, err_size);
	if (code == NT_EXIT_PERMISSION)
		snprintf(err, err_size, "%s; or run this as root, to trace here", why);
	return code;
}

void nt_top_source_close(struct nt_top_source *source)
{
	nt_top_daemon_close(&source->daemon);
	if (source->trace)
		nt_top_own_close(source->trace);
	free(source->trace);
	source->trace = NULL;
}

int nt_top_source_fd(const struct nt_top_source *source)
{
	return source->own ? nt_session_fd(&source->trace->session) : source->daemon.fd;
}

bool nt_top_source_turn(struct nt_top_source *source, bool readable, uint64_t now_ns)
{
	bool news = false;

	if (source->own) {
		if (readable)
			nt_top_own_read(source->trace);
		return nt_top_own_turn(source->trace, now_ns);
	}
	if (readable)
		news = nt_top_daemon_read(&source->daemon, now_ns);
	return nt_top_daemon_turn(&source->daemon, now_ns) || news;
}

uint64_t nt_top_source_next_ns(const struct nt_top_source *source)
{
	return source->own ? source->trace->next_ns : source->daemon.next_ns;
}

const char *nt_top_source_trouble(const struct nt_top_source *source)
{
	return source->own ? source->trace->trouble : source->daemon.trouble;
}

enum nt_exit nt_top_source_failure(const struct nt_top_source *source, const char **err)
{
	*err = source->daemon.why;
	return source->own ? NT_EXIT_OK : source->daemon.failure;
}
