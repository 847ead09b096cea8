/* SPDX-License-Identifier: GPL-2.0 */
/* The daemon's replies, by docs/protocol.md: each writes one line, and returns 0 or -errno. */
#ifndef NT_JSON_DAEMON_H
#define NT_JSON_DAEMON_H

#include <stdio.h>
#include "report.h"
#include "series.h"
#include "server.h"

/* What a reply tells of. */
struct nt_daemon_state {
	const struct nt_session *session;
	const struct nt_series_set *series;
	const struct nt_aggregate *recent; /* connections; its window began at recent_began_ns */
	uint64_t recent_began_ns;
	struct nt_counts counts;
	struct nt_server_counts server;
	uint64_t started_ns;    /* CLOCK_MONOTONIC */
	int64_t started_day_ns; /* the same as time of day, which no clock step changes any more */
	uint64_t losing_ns;     /* when records were last found lost; 0: never */
	uint64_t stalls;
	uint64_t excess_ns;
};

int nt_json_snapshot(FILE *out, const struct nt_daemon_state *state, unsigned int top);
int nt_json_health(FILE *out, const struct nt_daemon_state *state);

/* Takes text (of a report, or of a stall's line) along as it is. */
int nt_json_text(FILE *out, const char *text);

/* A stream begins. */
int nt_json_streaming(FILE *out);

#endif /* NT_JSON_DAEMON_H */
