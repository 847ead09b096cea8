/* SPDX-License-Identifier: GPL-2.0 */
/* The content of a timeline's line, in whichever format it is written. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "bpf/nagletrace.h"
#include "capture/processes.h"

/* The kinds of lines: first those that show an event of the kernel side, then our own. */
enum nt_line_kind {
	NT_LINE_WRITE = NT_EVENT_WRITE,
	NT_LINE_READ = NT_EVENT_READ,
	NT_LINE_SENT = NT_EVENT_SENT,
	NT_LINE_RECEIVED = NT_EVENT_RECEIVED,
	NT_LINE_HOLD_BEGIN = NT_EVENT_HOLD_BEGIN,
	NT_LINE_HOLD_END = NT_EVENT_HOLD_END,
	NT_LINE_ACK_DELAYED = NT_EVENT_ACK_DELAYED,
	NT_LINE_ACK_TIMER = NT_EVENT_ACK_TIMER,
	NT_LINE_STATE = NT_EVENT_STATE,
	NT_LINE_ACK_SENT = NT_EVENT_KINDS, /* the pending ACK */
	NT_LINE_OPTIONS,
	NT_LINE_DROPPED,
	NT_LINE_KINDS,
};

/* One end of a connection, as its events have shown it so far. */
struct nt_line_end {
	struct nt_tuple tuple;
	struct nt_process process; /* tgid 0: not known */
	bool holds;
	uint8_t reason; /* enum nt_hold_reason, while it holds */
	uint32_t held_bytes;
	bool acking; /* an ACK is pending */
};

struct nt_line {
	enum nt_line_kind kind;
	uint64_t time_ns;    /* CLOCK_MONOTONIC */
	int64_t day_ns;      /* the same as time of day, since 1970 */
	uint64_t since_ns;   /* since the first line */
	uint64_t gap_ns;     /* time since the connection's last line; 0: too short to show */
	uint32_t connection; /* its number, from 1 */
	const struct nt_event *event;    /* NULL: DROPPED */
	const struct nt_line_end *end;   /* the end at which it happened */
	const struct nt_line_end *other; /* NULL: not on this host, or not seen yet */
	bool right;                      /* it happened at the end shown on the right */
	bool first_of_end;               /* it is the first line of this end */
	bool retransmission;             /* SENT */
	int64_t seq, ack;                /* relative: the first byte of either direction is 1 */
	uint32_t bytes;
	uint64_t duration_ns;    /* HOLD_END, ACK_SENT */
	enum nt_ack_release how; /* ACK_SENT */
	uint64_t dropped;        /* DROPPED: how many events */
};

/* Writes a line. Returns 0 or -errno. */
typedef int nt_line_writer(void *context, const struct nt_line *line);
