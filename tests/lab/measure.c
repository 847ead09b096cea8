// SPDX-License-Identifier: GPL-2.0
/* Reads the clock, the kernel's counters and tcp_info, and logs what the application did. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

static const struct {
	const char *file;
	const char *line;
	const char *column;
	const char *name;
} counter_table[LAB_COUNTERS] = {
	{"/proc/self/net/netstat", "TcpExt:", "DelayedACKs", "TcpExtDelayedACKs"},
	{"/proc/self/net/netstat", "TcpExt:", "DelayedACKLocked", "TcpExtDelayedACKLocked"},
	{"/proc/self/net/netstat", "TcpExt:", "DelayedACKLost", "TcpExtDelayedACKLost"},
	{"/proc/self/net/netstat", "TcpExt:", "TCPAutoCorking", "TcpExtTCPAutoCorking"},
	{"/proc/self/net/snmp", "Tcp:", "RetransSegs", "TcpRetransSegs"},
	{"/proc/self/net/netstat", "TcpExt:", "TCPTimeouts", "TcpExtTCPTimeouts"},
};

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * LAB_SEC + (uint64_t)ts.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
	struct timespec left = {(time_t)(ns / LAB_SEC), (long)(ns % LAB_SEC)};

	while (ns && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

const char *counters_name(uint32_t i)
{
	return counter_table[i].name;
}

/* Both files have pairs of lines: the names, then the values in the same order. */
static int find_column(const char *names, const char *values, const char *column, uint64_t *out)
{
	size_t len = strlen(column);

	for (;;) {
		names += strspn(names, " ");
		values += strspn(values, " ");
		if (!*names || *names == '\n' || !*values || *values == '\n')
			return -ENOENT;
		if (strcspn(names, " \n") == len && !strncmp(names, column, len)) {
			*out = strtoull(values, NULL, 10);
			return 0;
		}
		names += strcspn(names, " \n");
		values += strcspn(values, " \n");
	}
}

static int read_counter(uint32_t i, uint64_t *out)
{
	const char *line = counter_table[i].line;
	char names[8192], values[8192];
	FILE *f = fopen(counter_table[i].file, "re");
	int err = -ENOENT;

	if (!f)
		return fail(-errno, "cannot open %s: %s", counter_table[i].file, strerror(errno));
	while (err && fgets(names, sizeof(names), f) && fgets(values, sizeof(values), f)) {
		if (!strncmp(names, line, strlen(line)))
			err = find_column(names, values, counter_table[i].column, out);
	}
	fclose(f);
	if (err)
		return fail(err, "%s has no counter %s", counter_table[i].file,
			    counter_table[i].name);
	return 0;
}

int counters_read(struct lab_counters *c)
{
	int err = 0;

	for (uint32_t i = 0; i < LAB_COUNTERS && !err; i++)
		err = read_counter(i, &c->value[i]);
	return err;
}

int conn_take_info(struct lab_conn *c)
{
	socklen_t len = sizeof(c->info);

	if (c->fd < 0)
		return 0;
	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &c->info, &len))
		return fail(-errno, "cannot read TCP_INFO: %s", strerror(errno));
	return 0;
}

uint64_t log_start(const struct lab_log *log)
{
	return log->on ? now_ns() : 0;
}

/* A missing event is worse than a missing run, so we end if there is no memory. */
static void log_grow(struct lab_log *log)
{
	uint32_t room = log->room ? 2 * log->room : 64;
	struct lab_event *event = realloc(log->event, room * sizeof(*event));

	if (!event) {
		fail(-ENOMEM, "no memory for %u events: play fewer rounds", room);
		_exit(1);
	}
	log->event = event;
	log->room = room;
}

void log_add(struct lab_conn *c, const struct lab_event *e)
{
	struct lab_log *log = &c->log;
	uint64_t end = log_start(log);
	struct lab_event *to;

	if (!log->on)
		return;
	if (log->nr == log->room)
		log_grow(log);
	to = &log->event[log->nr++];
	*to = *e;
	to->connection = c->index;
	to->port = c->end->plan->opt.reconnect ? c->port : 0;
	to->round = c->round;
	to->tid = gettid();
	to->end_ns = end;
}
