/* SPDX-License-Identifier: GPL-2.0 */
/* The requests that a client may send to the daemon: docs/protocol.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define NT_PROTOCOL     1
#define NT_REQUEST_MAX  4096 /* bytes of a request, with its newline */
#define NT_REQUEST_TOP  1000 /* connections that a client may ask for */
#define NT_REQUEST_TEXT 200  /* bytes of an error */

enum nt_request_kind {
	NT_REQUEST_SNAPSHOT = 1,
	NT_REQUEST_REPORT,
	NT_REQUEST_STREAM,
	NT_REQUEST_HEALTH,
};

/* The format in which stalls and reports are written. */
enum nt_format {
	NT_FORMAT_JSON,
	NT_FORMAT_TEXT,
	NT_FORMAT_WIDE, /* text beyond 80 columns */
	NT_FORMATS,
};

struct nt_request {
	enum nt_request_kind kind;
	enum nt_format format; /* of reports and streams */
	unsigned int top; /* snapshot: how many connections, those with the highest cost first */
	bool last;        /* snapshot: the last stall of each series too */
};

/*
 * Parses one request, a JSON object of length bytes. Returns 0, or -EINVAL with one line in err
 * that says what is wrong with it and what would be right.
 */
int nt_request_parse(const char *line, size_t length, struct nt_request *request, char *err,
		     size_t err_size);
