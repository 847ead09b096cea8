// SPDX-License-Identifier: GPL-2.0
#include "show_report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <json-c/json.h>
#include "client.h"
#include "session.h"
#include "text.h"

static enum nt_exit cannot_reach(const struct nt_options *opts, int err)
{
	char text[512];
	enum nt_exit code = nt_client_explain(opts->socket, err, text, sizeof(text));

	nt_complain("%s", text);
	return code;
}

static int ask(int fd, const struct nt_options *opts)
{
	const char *format = opts->output == NT_OUTPUT_JSON ? "json" : opts->wide ? "wide" : "text";

	return nt_client_ask(fd, "\"request\":\"%s\",\"format\":\"%s\"",
			     opts->follow ? "stream" : "report", format);
}

static const char *string_of(struct json_object *o, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(o, key, &value) ? json_object_get_string(value) : "";
}

/* Prints what a line of the daemon says; false if it says that something is wrong. */
static bool show(const char *line)
{
	struct json_object *o = json_tokener_parse(line), *value;
	const char *type = o ? string_of(o, "type") : "";
	bool good = true;

	if (!strcmp(type, "text")) {
		fputs(string_of(o, "text"), stdout);
	} else if (!strcmp(type, "error") || !o) {
		nt_complain("the daemon says: %s", o ? string_of(o, "error") : line);
		good = false;
	} else if (!strcmp(type, "skipped") && json_object_object_get_ex(o, "stalls", &value)) {
		nt_complain("%s stalls not shown: they came too fast",
			    json_object_get_string(value));
	} else if (strcmp(type, "streaming")) {
		fputs(line, stdout);
	}
	json_object_put(o);
	return good;
}

static enum nt_exit show_all(FILE *in, const struct nt_options *opts)
{
	size_t room = 0, answers = opts->output == NT_OUTPUT_TEXT && opts->follow ? 2 : 1;
	enum nt_exit code = NT_EXIT_OK;
	char *line = NULL;

	for (size_t n = 1; getline(&line, &room, in) > 0; n++) {
		int err;

		if (!show(line))
			code = NT_EXIT_FAILED;
		err = nt_flush(stdout);
		if (err && err != -EPIPE) {
			nt_complain("cannot write the output: %s", strerror(-err));
			code = NT_EXIT_FAILED;
		}
		if (err || code || (!opts->follow && n == answers))
			goto out;
		if (opts->follow && n == 1) /* stalls may be long in coming */
			setsockopt(fileno(in), SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){},
				   sizeof(struct timeval));
	}
	code = ferror(in) ? cannot_reach(opts, errno) : NT_EXIT_FAILED;
	if (!ferror(in))
		nt_complain("--socket %s: the daemon has ended", opts->socket);
out:
	free(line);
	return code;
}

enum nt_exit nt_show_report(const struct nt_options *opts)
{
	enum nt_exit code;
	FILE *in;
	int fd, err;

	signal(SIGPIPE, SIG_IGN);
	fd = nt_client_connect(opts->socket, true);
	if (fd < 0)
		return cannot_reach(opts, -fd);
	in = fdopen(fd, "r");
	err = in ? ask(fd, opts) : -errno;
	code = err ? cannot_reach(opts, -err) : show_all(in, opts);
	if (in)
		fclose(in);
	else
		close(fd);
	return code;
}
