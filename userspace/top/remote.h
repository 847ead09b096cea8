/* SPDX-License-Identifier: GPL-2.0 */
/* Takes data from the daemon, over a connection to its socket that it renews when the daemon is
 * gone. */
#pragma once

#include "protocol/answers.h"
#include "terms/settings.h"
#include "top/data.h"

struct nt_loop;

struct nt_top_daemon {
	const char *path;
	struct nt_top_data *data;
	uint64_t interval_ns;
	struct nt_loop *loop;
	int fd;    /* -1: not connected */
	bool news; /* something new to show has come since the last turn */
	struct nt_answers answers;
	uint64_t asked_ns;                /* 0: no answer is due */
	uint64_t next_ns;                 /* when to ask, or to connect, again */
	uint64_t gone_ns;                 /* when the daemon went away */
	char why[NT_ANSWER_ERR];          /* the reason why there is none */
	char trouble[NT_ANSWER_ERR + 64]; /* what the screen shows of it; "" when all is well */
	bool failed;                      /* nothing ever came, and nothing will; why explains */
};

/* Connects and asks; the loop reads the answers. Returns 0 or -errno; the caller closes it in
 * either case. */
int nt_top_daemon_open(struct nt_top_daemon *daemon, const char *path, struct nt_loop *loop,
		       uint64_t interval_ns, struct nt_top_data *data, uint64_t now_ns);
void nt_top_daemon_close(struct nt_top_daemon *daemon);

/* Asks or connects again, when it is time. Returns true if there is something new to show. */
bool nt_top_daemon_turn(struct nt_top_daemon *daemon, uint64_t now_ns);
