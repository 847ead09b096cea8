/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads the lines that come over the daemon's socket, for all its clients. The server of that
 * socket may be hostile: a line has a limit, waiting has an end, and we accept a line only if it is
 * JSON and has a type that the protocol knows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "protocol/json_scan.h"
#include "protocol/request.h"
#include "base/text.h"

/*
 * The limit of a line in bytes. The default daemon's longest answer is a report of 1024
 * connections, each with 64 frames of a stack (NT_STACK_DEPTH) of some 150 bytes: 10 MB. This limit
 * leaves room for names three times as long.
 */
#define NT_ANSWER_MAX (32UL << 20)

/* Bytes of the message about a line that is no answer, with its NUL: a daemon's error, escaped. */
#define NT_ANSWER_ERR (NT_ESCAPED_LEN(NT_REQUEST_TEXT) + 32)

struct nt_answers {
	int fd;
	char *bytes;
	size_t room, length; /* bytes allocated; bytes that have come */
	size_t taken;        /* bytes of lines that the caller has got */
	size_t looked_at;    /* bytes behind those, in which we found no newline */
};

/* Reads answers from this socket, which stays the caller's. */
void nt_answers_open(struct nt_answers *answers, int fd);
void nt_answers_close(struct nt_answers *answers);

/*
 * Reads what has come, at most 64 KiB, and never waits. Returns 1: something came, perhaps a line;
 * 0: nothing yet; -ENODATA: nothing more will come; -EMSGSIZE: a line is longer than NT_ANSWER_MAX;
 * or -ENOMEM.
 */
int nt_answers_read(struct nt_answers *answers);

/*
 * Returns the next whole line, with a NUL in place of its newline, or NULL if there is none yet.
 * The caller may change it, up to the next nt_answers_read().
 */
char *nt_answers_line(struct nt_answers *answers, size_t *length);

/*
 * Waits for the next line until deadline_ns (CLOCK_MONOTONIC). With UINT64_MAX it waits as long as
 * it takes; but once a part of the line has come, only NT_CLIENT_PATIENCE_S for the rest. Returns
 * 0, -EAGAIN: the line did not come in time, or an error of nt_answers_read().
 */
int nt_answers_wait(struct nt_answers *answers, uint64_t deadline_ns, char **line, size_t *length);

/* The parts of an answer. A key that the line does not have is NT_JSON_ABSENT. */
struct nt_answer {
	struct nt_json_value type, text, state, stalls, others;
	size_t tree_bytes; /* memory that json-c would need for it */
};

/*
 * Parses a line of length bytes, which a NUL follows. It shortens lists in place, as trims say;
 * apart from that the line stays as it is and can be written out. Returns 0, or -EINVAL with one
 * line in err: the line is no answer, is of another protocol, or is an error that the daemon
 * reports.
 */
int nt_answer_parse(char *line, size_t length, const struct nt_json_trim *trims, size_t n_trims,
		    struct nt_answer *answer, char *err, size_t err_size);
