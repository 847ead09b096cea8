/* SPDX-License-Identifier: GPL-2.0 */
/* The daemon's replies, by docs/protocol.md: each function writes one line and returns 0 or
 * -errno. */
#pragma once

#include <stdio.h>
#include "output/writer.h"
#include "summary/series.h"
#include "summary/window.h"
#include "daemon/server.h"

/* The state of the daemon from which it writes a reply. */
struct nt_daemon_state {
	const struct nt_session *session;
	const struct nt_series_set *series;
	const struct nt_window *window;
	struct nt_counts counts;
	struct nt_server_counts server;
	uint64_t started_ns;    /* CLOCK_MONOTONIC */
	int64_t started_day_ns; /* the same as time of day; clock steps do not change it */
	uint64_t dropping_ns;   /* when records were last dropped; 0: never */
	uint64_t stalls;
	uint64_t excess_ns;
};

int nt_json_snapshot(FILE *out, const struct nt_daemon_state *state, unsigned int top, bool last);
int nt_json_health(FILE *out, const struct nt_daemon_state *state);

/* Sends text (a report, or the line of a stall) unchanged inside a line of JSON. */
int nt_json_text(FILE *out, const char *text);

/* Confirms that a stream begins, and says where its records come from. */
int nt_json_streaming(FILE *out, const struct nt_daemon_state *state);

/*
 * Adds to a stream what was counted in the last span_ns: by that a reader knows what the stream
 * lacks. counts.audited is false where nobody knows how many timers went unseen.
 */
int nt_json_stream_totals(FILE *out, const struct nt_session *session,
			  const struct nt_counts *counts, uint64_t span_ns);
