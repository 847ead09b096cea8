/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A tracing session: the attached programs, whom they are to watch, and the records that come. What
 * `nagletrace` and `nagletrace daemon` have in common.
 */
#ifndef NT_SESSION_H
#define NT_SESSION_H

#include "counts.h"
#include "overhead.h"
#include "owners.h"
#include "processes.h"
#include "stacks.h"
#include "stall.h"
#include "timeline.h"
#include "tracer.h"

struct ring_buffer;

struct nt_session {
	const struct nt_options *opts;
	struct nt_targets targets;
	struct nt_tracer tracer;
	struct nt_owners owners;
	struct nt_overhead overhead;
	struct nt_stacks *stacks;     /* NULL without --stacks */
	struct nt_timeline *timeline; /* NULL without --timeline, as the next */
	struct ring_buffer *events;
	uint64_t event_ns;        /* when the newest event happened */
	uint64_t events_pause_ns; /* as pause_ns, for these */
	struct ring_buffer *records;
	void (*on_stall)(void *context, const struct nt_stall *stall);
	void *context;
	uint64_t pause_ns;       /* when others have their turn */
	struct nt_counts counts; /* as they were read last */
	bool counts_failed;      /* which was told */
	uint64_t lost_told;      /* losses that were told of */
	uint64_t lost_stacks;
	uint64_t lost_checked_ns;
};

/*
 * Loads and attaches, and calls on_stall(context) for what nt_session_consume() finds. Returns
 * NT_EXIT_OK, or the exit code with one line in err. To be closed in either case.
 */
enum nt_exit nt_session_open(struct nt_session *session, const struct nt_options *opts,
			     void (*on_stall)(void *context, const struct nt_stall *stall),
			     void *context, char *err, size_t err_size);
void nt_session_close(struct nt_session *session);

/* Readable when there are records. */
int nt_session_fd(const struct nt_session *session);

/* Takes records for some 20 ms at most: true when there may be more. drain: all, in 2 s at most. */
bool nt_session_consume(struct nt_session *session);
void nt_session_drain(struct nt_session *session);

/*
 * Takes events for some 20 ms at most, for 2 s where all are wanted. *until_ns (CLOCK_MONOTONIC,
 * UINT64_MAX: all) is what the timeline is to be written to, sooner where events are left. True
 * when there is something to write.
 */
bool nt_session_consume_events(struct nt_session *session, uint64_t *until_ns);

/* Writes the timeline of what happened before. 0, or -errno of writing. */
int nt_session_write_timeline(struct nt_session *session, uint64_t until_ns);

/* What the kernel side has counted; as it was read last where that cannot be read, which is told
 * once. */
void nt_session_counts(struct nt_session *session, struct nt_counts *counts);

/* At most once a second: true when records were lost since it was last true; *counts are then set.
 */
bool nt_session_lost_more(struct nt_session *session, struct nt_counts *counts);

/* Says on stderr which hooks are in use and what the missing ones cost. */
void nt_session_print_hooks(const struct nt_session *session);

/* "nagletrace: " and one line, on stderr. */
void nt_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* NT_SESSION_H */
