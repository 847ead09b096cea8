/* SPDX-License-Identifier: GPL-2.0 */
/* The daemon as the one who tells: a connection to its socket, and again when it was lost. */
#ifndef NT_TOP_DAEMON_H
#define NT_TOP_DAEMON_H

#include "options.h"
#include "top_data.h"

struct nt_top_daemon {
	const char *path;
	struct nt_top_data *data;
	uint64_t interval_ns;
	int fd; /* -1: not connected */
	char *line;
	size_t length, room;  /* of the line that has not come whole yet */
	uint64_t asked_ns;    /* 0: no answer is waited for */
	uint64_t next_ns;     /* when to ask, or to connect, again */
	uint64_t lost_ns;     /* since when there is no daemon */
	char why[256];        /* there is none */
	char trouble[320];    /* what the screen says of that; "" when all is well */
	enum nt_exit failure; /* nothing ever came, and nothing will: why says what is wrong */
};

/* Connects and asks. 0 or -errno; to be closed in either case. */
int nt_top_daemon_open(struct nt_top_daemon *daemon, const char *path, uint64_t interval_ns,
		       struct nt_top_data *data, uint64_t now_ns);
void nt_top_daemon_close(struct nt_top_daemon *daemon);

/* Reads what has come, some of it if it is much. True: there is something new to show. */
bool nt_top_daemon_read(struct nt_top_daemon *daemon, uint64_t now_ns);

/* Asks again, or connects again, when it is time. True: there is something new to show. */
bool nt_top_daemon_turn(struct nt_top_daemon *daemon, uint64_t now_ns);

#endif /* NT_TOP_DAEMON_H */
