/* SPDX-License-Identifier: GPL-2.0 */
/* Takes the events of the kernel side for a timeline, and writes them between the stalls. */
#pragma once

#include "capture/session.h"
#include "timeline/timeline.h"

struct nt_timeline_events {
	const struct nt_session *session;
	struct nt_timeline *timeline;
	struct ring_buffer *ring;
	uint64_t newest_ns; /* when the newest event happened */
	uint64_t pause_ns;  /* when others have their turn */
	uint64_t until_ns;  /* up to which the last call could have written */
	bool more;          /* we may have left some in the ring buffer */
	bool leaves_out;    /* we only count events, in left_out */
	uint64_t left_out;
};

/*
 * The session must be open, and trace with --timeline. Returns 0 or -errno; in either case the
 * caller closes this, before it closes the session.
 */
int nt_timeline_events_open(struct nt_timeline_events *events, struct nt_session *session,
			    nt_line_writer *write, void *context);
void nt_timeline_events_close(struct nt_timeline_events *events);

/*
 * Takes events for some 20 ms at most, and none while many wait to be written. *until_ns
 * (CLOCK_MONOTONIC) is the time up to which the caller wants the timeline; it becomes earlier if
 * events are left. True: there is something to write.
 */
bool nt_timeline_events_consume(struct nt_timeline_events *events, uint64_t *until_ns);

/*
 * Writes the timeline of all that happened before until_ns, but stops at give_up_ns. Returns 0, or
 * -errno of writing.
 */
int nt_timeline_events_write(struct nt_timeline_events *events, uint64_t until_ns,
			     uint64_t give_up_ns);

/*
 * At the end of the trace: takes and writes all that has happened by now, as far as it can until
 * give_up_ns. If that was too short the others count as lost, and it reports that on stderr.
 * Returns 0, or -errno of writing.
 */
int nt_timeline_events_finish(struct nt_timeline_events *events, uint64_t give_up_ns);

/* Says whether more could be taken or written at once than was. */
bool nt_timeline_events_wait(struct nt_timeline_events *events);
