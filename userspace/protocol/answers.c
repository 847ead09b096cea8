// SPDX-License-Identifier: GPL-2.0
#include "protocol/answers.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "protocol/client.h"
#include "base/clock.h"
#include "base/grow.h"

/* What one read takes: four empty a unix socket of 208 KiB, net.core.wmem_default. */
#define CHUNK_BYTES 65536

/* ---- lines ---- */

void nt_answers_open(struct nt_answers *answers, int fd)
{
	*answers = (struct nt_answers){.fd = fd};
}

void nt_answers_close(struct nt_answers *answers)
{
	free(answers->bytes);
	nt_answers_open(answers, -1);
}

/*
 * Makes room for a chunk behind the bytes that have come, and for a NUL. Returns 0 or why there is
 * none, as nt_answers_read() does.
 */
static int make_room(struct nt_answers *answers)
{
	size_t room = answers->room ? 2 * answers->room : 4 * CHUNK_BYTES;

	if (answers->taken) {
		answers->length -= answers->taken;
		memmove(answers->bytes, answers->bytes + answers->taken, answers->length);
		answers->taken = 0;
	}
	if (answers->length + CHUNK_BYTES < answers->room)
		return 0;
	if (answers->length > NT_ANSWER_MAX)
		return -EMSGSIZE;
	if (room > NT_ANSWER_MAX + 2 * CHUNK_BYTES)
		room = NT_ANSWER_MAX + 2 * CHUNK_BYTES;
	if (nt_resize(&answers->bytes, room, 1))
		return -ENOMEM;
	answers->room = room;
	return 0;
}

int nt_answers_read(struct nt_answers *answers)
{
	int err = make_room(answers);
	ssize_t n;

	if (err)
		return err;
	n = recv(answers->fd, answers->bytes + answers->length, CHUNK_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) /* also an error: the daemon closed it before it had read all that we sent */
		return -ENODATA;
	answers->length += n;
	return 1;
}

char *nt_answers_line(struct nt_answers *answers, size_t *length)
{
	char *from = answers->bytes + answers->taken, *end;
	size_t left = answers->length - answers->taken;

	if (left == answers->looked_at)
		return NULL;
	end = memchr(from + answers->looked_at, '\n', left - answers->looked_at);
	answers->looked_at = end ? 0 : left;
	if (!end)
		return NULL;
	*end = '\0';
	*length = end - from;
	answers->taken += *length + 1;
	return from;
}

/* Waits until there is something to read, or the deadline has come. */
static int wait_for_input(const struct nt_answers *answers, uint64_t deadline_ns)
{
	struct pollfd in = {.fd = answers->fd, .events = POLLIN};
	uint64_t now_ns = nt_now_ns();
	int ms = -1;

	if (now_ns >= deadline_ns)
		return -EAGAIN;
	if (deadline_ns != UINT64_MAX)
		ms = (deadline_ns - now_ns) / 1000000 + 1;
	return poll(&in, 1, ms) < 0 && errno != EINTR ? -errno : 0;
}

int nt_answers_wait(struct nt_answers *answers, uint64_t deadline_ns, char **line, size_t *length)
{
	for (int came = 0;;) {
		*line = nt_answers_line(answers, length);
		if (*line)
			return 0;
		if (came && nt_now_ns() >= deadline_ns) /* bytes without end are no answer */
			return -EAGAIN;
		if (deadline_ns == UINT64_MAX && answers->length > answers->taken)
			deadline_ns = nt_now_ns() + NT_CLIENT_PATIENCE_S * NT_SECOND_NS;
		came = nt_answers_read(answers);
		if (!came)
			came = wait_for_input(answers, deadline_ns);
		if (came < 0)
			return came;
	}
}

/* ---- what the lines contain ---- */

enum {
	TYPE,
	PROTOCOL,
	TEXT,
	ERROR,
	STALLS,
	OTHERS,
	STATE,
	N_MEMBERS
};

static int refuse(char *err, size_t size)
{
	snprintf(err, size, "what answers is no nagletrace daemon; give its --socket");
	return -EINVAL;
}

/* A record is the same wherever it is written, and does not name the protocol. */
static bool is_record(const struct nt_json_value *type)
{
	return nt_json_is(type, "stall") || nt_json_is(type, "late_ack") ||
	       nt_json_is(type, "hold") || nt_json_is(type, "report");
}

static int check_protocol(const struct nt_json_member *members, char *err, size_t size)
{
	const struct nt_json_value *protocol = &members[PROTOCOL].value;
	uint64_t number;

	if (protocol->type == NT_JSON_ABSENT && is_record(&members[TYPE].value))
		return 0;
	if (!nt_json_whole(protocol, &number))
		return refuse(err, size);
	if (number == NT_PROTOCOL)
		return 0;
	snprintf(err, size,
		 "the daemon speaks protocol %" PRIu64 ", this nagletrace %d; "
		 "use the nagletrace that came with it",
		 number, NT_PROTOCOL);
	return -EINVAL;
}

/* The daemon has already escaped the part of a request that it quotes. */
static int error_of(struct nt_json_value *error, char *err, size_t size)
{
	char text[NT_ESCAPED_LEN(NT_REQUEST_TEXT)];

	if (error->type != NT_JSON_STRING)
		return refuse(err, size);
	nt_json_unescape(error);
	if (error->length > NT_REQUEST_TEXT)
		error->length = NT_REQUEST_TEXT;
	nt_escape_again(error->at, error->length, text, sizeof(text));
	snprintf(err, size, "the daemon says: %s", text);
	return -EINVAL;
}

int nt_answer_parse(char *line, size_t length, const struct nt_json_trim *trims, size_t n_trims,
		    struct nt_answer *answer, char *err, size_t err_size)
{
	struct nt_json_member members[N_MEMBERS] = {
		[TYPE] = {.key = "type"},     [PROTOCOL] = {.key = "protocol"},
		[TEXT] = {.key = "text"},     [ERROR] = {.key = "error"},
		[STATE] = {.key = "state"},   [STALLS] = {.key = "stalls"},
		[OTHERS] = {.key = "others"},
	};
	struct nt_json_scan scan = {
		.members = members, .n_members = N_MEMBERS, .trims = trims, .n_trims = n_trims};
	int bad;

	if (!nt_json_scan(&scan, line, length) || members[TYPE].value.type != NT_JSON_STRING ||
	    !members[TYPE].value.length)
		return refuse(err, err_size);
	if (nt_json_is(&members[TYPE].value, "error"))
		return error_of(&members[ERROR].value, err, err_size);
	bad = check_protocol(members, err, err_size);
	if (bad)
		return bad;
	answer->type = members[TYPE].value;
	answer->text = members[TEXT].value;
	answer->state = members[STATE].value;
	answer->stalls = members[STALLS].value;
	answer->others = members[OTHERS].value;
	answer->tree_bytes = scan.tree_bytes;
	return 0;
}
