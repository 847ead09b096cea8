/* SPDX-License-Identifier: GPL-2.0 */
/*
 * --timeline: the events of the kernel side put in order of time, by connection, both ends of one
 * on this host together; with what follows from them: how an ACK that was put off went out, which
 * options changed, where nothing moved. timeline_text.c and timeline_json.c write it.
 */
#ifndef NT_TIMELINE_H
#define NT_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "owners.h"
#include "processes.h"
#include "stall.h"

/* What a line tells of; what the kernel side tells of itself comes first. */
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
	NT_LINE_ACK_SENT = NT_EVENT_KINDS, /* the one that was put off */
	NT_LINE_OPTIONS,
	NT_LINE_LOST,
	NT_LINE_KINDS,
};

/* One end of a connection, as its events showed it so far. */
struct nt_line_end {
	struct nt_tuple tuple;
	struct nt_process process; /* tgid 0: not known */
	bool holds;
	uint8_t reason; /* enum nt_hold_reason, while it holds */
	uint32_t held_bytes;
	bool acking; /* an ACK is put off */
};

struct nt_line {
	enum nt_line_kind kind;
	uint64_t time_ns;  /* CLOCK_MONOTONIC */
	int64_t day_ns;    /* the same as time of day, since 1970 */
	uint64_t since_ns; /* since the first line */
	uint64_t gap_ns;   /* without an event of this connection before it; 0: none to speak of */
	uint32_t connection;             /* its number, from 1 */
	const struct nt_event *event;    /* NULL: LOST */
	const struct nt_line_end *end;   /* at which it happened */
	const struct nt_line_end *other; /* NULL: not on this host, or not seen yet */
	bool right;                      /* the end shown at the right */
	bool first_of_end;               /* nothing of this end came before */
	bool retransmission;             /* SENT */
	int64_t seq, ack;                /* relative: the first byte of either way is 1 */
	uint32_t bytes;
	uint64_t duration_ns; /* HOLD_END, ACK_SENT */
	enum nt_ack_end how;  /* ACK_SENT */
	uint64_t lost;        /* LOST: how many events */
};

struct nt_timeline;

/* Writes a line; 0 or -errno. */
typedef int nt_line_writer(FILE *out, const struct nt_options *opts, const struct nt_line *line);
nt_line_writer nt_text_line, nt_json_line;

/* A stall, or with --all-holds a hold, among the lines of what led to it. */
int nt_text_timeline_stall(FILE *out, const struct nt_stall *stall);

/* NULL: no memory. */
struct nt_timeline *nt_timeline_new(const struct nt_options *opts, struct nt_owners *owners,
				    FILE *out);
void nt_timeline_free(struct nt_timeline *timeline);

/* Takes an event, copied; one for which there is no memory is counted as lost. */
void nt_timeline_add(struct nt_timeline *timeline, const struct nt_event *event);

/* Is there a line to write of what happened before until_ns? */
bool nt_timeline_waits(struct nt_timeline *timeline, uint64_t until_ns);

/*
 * Writes the lines of what happened before until_ns (CLOCK_MONOTONIC), UINT64_MAX: of all. lost:
 * how many events the kernel side lost in all, where it is known. 0, or -errno of writing.
 */
int nt_timeline_write(struct nt_timeline *timeline, uint64_t until_ns, uint64_t lost);

#endif /* NT_TIMELINE_H */
