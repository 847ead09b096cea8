// SPDX-License-Identifier: GPL-2.0
#include "top/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/client.h"
#include "base/clock.h"

static bool open_own(struct nt_top_source *source, const struct nt_settings *settings,
		     struct nt_loop *loop, uint64_t interval_ns, struct nt_top_data *data,
		     struct nt_error *error)
{
	source->own = true;
	source->trace = calloc(1, sizeof(*source->trace));
	return nt_started(source->trace ? 0 : -ENOMEM, error) &&
	       nt_top_own_open(source->trace, settings, loop, interval_ns, data, error);
}

bool nt_top_source_open(struct nt_top_source *source, const struct nt_settings *settings,
			struct nt_loop *loop, uint64_t interval_ns, struct nt_top_data *data,
			struct nt_error *error)
{
	struct nt_error unreached;
	int err;

	memset(source, 0, sizeof(*source));
	source->daemon.fd = -1;
	if (settings->traces_itself)
		return open_own(source, settings, loop, interval_ns, data, error);
	err = nt_top_daemon_open(&source->daemon, settings->socket, loop, interval_ns, data,
				 nt_now_ns());
	if (!err)
		return true;
	nt_client_explain(settings->socket, -err, &unreached);
	if (open_own(source, settings, loop, interval_ns, data, error))
		return true;
	if (error->exit == NT_EXIT_PERMISSION)
		nt_error_set(error, NT_EXIT_PERMISSION,
			     "%.400s; or run this as root, to trace here", unreached.text);
	return false;
}

void nt_top_source_close(struct nt_top_source *source)
{
	nt_top_daemon_close(&source->daemon);
	if (source->trace)
		nt_top_own_close(source->trace);
	free(source->trace);
	source->trace = NULL;
}

bool nt_top_source_turn(struct nt_top_source *source, uint64_t now_ns)
{
	return source->own ? nt_top_own_turn(source->trace, now_ns)
			   : nt_top_daemon_turn(&source->daemon, now_ns);
}

uint64_t nt_top_source_next_ns(const struct nt_top_source *source)
{
	return source->own ? source->trace->next_ns : source->daemon.next_ns;
}

const char *nt_top_source_trouble(const struct nt_top_source *source)
{
	return source->own ? source->trace->trouble : source->daemon.trouble;
}

const char *nt_top_source_failure(const struct nt_top_source *source)
{
	return !source->own && source->daemon.failed ? source->daemon.why : NULL;
}
