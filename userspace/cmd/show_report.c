// SPDX-License-Identifier: GPL-2.0
#include "cmd/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol/answers.h"
#include "protocol/client.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"

/* Complains in one line that names the socket. */
static enum nt_exit fail(const struct nt_settings *settings, const char *why)
{
	char path[NT_ESCAPED_LEN(NT_SOCKET_PATH_LEN)];

	nt_escape(settings->socket, strlen(settings->socket), path, sizeof(path));
	nt_log("--socket %s: %s", path, why);
	return NT_EXIT_FAILED;
}

static enum nt_exit cannot_reach(const struct nt_settings *settings, int err)
{
	struct nt_error error;

	nt_client_explain(settings->socket, err, &error);
	return nt_error_log(&error);
}

static int ask(int fd, const struct nt_settings *settings)
{
	const char *format = settings->output == NT_OUTPUT_JSON ? "json"
			     : settings->wide                   ? "wide"
								: "text";

	return nt_client_ask(fd, "\"request\":\"%s\",\"format\":\"%s\"",
			     settings->follow   ? "stream"
			     : settings->health ? "health"
						: "report",
			     format);
}

/* Checks that the first line is of the type that the request asks for. */
static bool is_expected(const struct nt_settings *settings, size_t n,
			const struct nt_answer *answer)
{
	if (settings->follow)
		return n > 1 || nt_json_is(&answer->type, "streaming");
	if (settings->health)
		return nt_json_is(&answer->type, "health") && answer->state.type == NT_JSON_STRING;
	return nt_json_is(&answer->type, settings->output == NT_OUTPUT_JSON ? "report" : "text");
}

/* Writes the content of a line; returns false if the line does not follow the protocol. */
static bool show(const struct nt_settings *settings, const char *line, size_t length,
		 struct nt_answer *answer)
{
	uint64_t stalls, others = 0;

	if (nt_json_is(&answer->type, "skipped")) {
		if (!nt_json_whole(&answer->stalls, &stalls) ||
		    (answer->others.type != NT_JSON_ABSENT &&
		     !nt_json_whole(&answer->others, &others)))
			return false;
		if (others)
			nt_log("%" PRIu64 " stalls and %" PRIu64
			       " other records not shown: they came too fast",
			       stalls, others);
		else
			nt_log("%" PRIu64 " stalls not shown: they came too fast", stalls);
	}
	if (settings->output == NT_OUTPUT_JSON) {
		nt_write_json_escaped(stdout, line, length);
		fputc('\n', stdout);
	} else if (nt_json_is(&answer->type, "text")) {
		if (answer->text.type != NT_JSON_STRING)
			return false;
		nt_json_unescape(&answer->text);
		nt_write_escaped(stdout, answer->text.at, answer->text.length);
	} else if (settings->health) {
		nt_json_unescape(&answer->state);
		nt_write_escaped(stdout, answer->state.at, answer->state.length);
		fputc('\n', stdout);
	}
	return true;
}

static enum nt_exit take_line(const struct nt_settings *settings, size_t n, char *line,
			      size_t length)
{
	struct nt_answer answer;
	char err[NT_ANSWER_ERR];

	if (nt_answer_parse(line, length, NULL, 0, &answer, err, sizeof(err)))
		return fail(settings, err);
	if (!is_expected(settings, n, &answer) || !show(settings, line, length, &answer))
		return cannot_reach(settings, EPROTO);
	return settings->health && nt_json_is(&answer.state, "blind") ? NT_EXIT_FAILED : NT_EXIT_OK;
}

static enum nt_exit show_all(int fd, const struct nt_settings *settings)
{
	uint64_t deadline_ns = nt_now_ns() + NT_CLIENT_PATIENCE_S * NT_SECOND_NS;
	enum nt_exit code = NT_EXIT_OK;
	struct nt_answers answers;

	nt_answers_open(&answers, fd);
	for (size_t n = 1; !code; n++) {
		size_t length;
		char *line;
		int err = nt_answers_wait(&answers, deadline_ns, &line, &length);

		code = err ? cannot_reach(settings, -err) : take_line(settings, n, line, length);
		err = nt_flush(stdout);
		if (nt_streams_written(err))
			code = NT_EXIT_FAILED;
		if (err || !settings->follow)
			break;
		deadline_ns = UINT64_MAX; /* a stream may wait long for a stall */
	}
	nt_answers_close(&answers);
	return code;
}

enum nt_exit nt_show_report(const struct nt_settings *settings)
{
	int err, fd = nt_client_connect(settings->socket, true);
	enum nt_exit code;

	if (fd < 0)
		return cannot_reach(settings, -fd);
	err = ask(fd, settings);
	code = err ? cannot_reach(settings, -err) : show_all(fd, settings);
	close(fd);
	return code;
}
