// SPDX-License-Identifier: GPL-2.0
/* Between the parent's files: main.c, conduct.c and child.c. */
#pragma once

#include <signal.h>

#include "lab.h"

struct lab_child {
	pid_t pid;
	int channel;
	/* What was read of the channel and is not yet a line taken. */
	char *buf;
	size_t len;
	size_t room;
	size_t taken;
	struct json_object *who;
	struct json_object *connections;
	struct json_object *report;
	uint32_t port;
	uint32_t mss;
};

struct lab_run {
	struct lab_plan plan;
	struct lab_child child[LAB_SIDES];
	int signals;
	int watchdog;
};

extern const char *const side_name[LAB_SIDES];

/* conduct.c: plays the whole run; mask is the signal mask the ends get back. */
int conduct(struct lab_run *run, const sigset_t *mask);

/*
 * child.c. child_await waits for fd (-1: for nothing) while the run may go on: 1 when it is
 * readable, 0 after wait_ns, or -errno. A line of child_line is valid until the next call.
 */
int child_start(struct lab_run *run, enum lab_side side, const sigset_t *mask);
int child_await(struct lab_run *run, int fd, uint64_t wait_ns);
int child_line(struct lab_run *run, enum lab_side side, char **line);
int child_await_exits(struct lab_run *run);
void child_end_all(struct lab_run *run);
