/* SPDX-License-Identifier: GPL-2.0 */
/*
 * --timeline: puts the events of the kernel side in order of time and groups them by connection,
 * with both ends if both are on this host. It adds what follows from them: how a pending ACK went
 * out, which options changed, where nothing moved. The caller of nt_timeline_new() decides how
 * lines are written.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "capture/owners.h"
#include "timeline/line.h"

struct nt_timeline;

/* Returns NULL without memory. */
struct nt_timeline *nt_timeline_new(const struct nt_settings *settings, struct nt_owners *owners,
				    nt_line_writer *write, void *context);
void nt_timeline_free(struct nt_timeline *timeline);

/* Takes a copy of the event; without memory for it, the event counts as dropped. */
void nt_timeline_add(struct nt_timeline *timeline, const struct nt_event *event);

/* How many events have not been written; are there such that happened before until_ns? */
size_t nt_timeline_queued(const struct nt_timeline *timeline);
bool nt_timeline_waits(struct nt_timeline *timeline, uint64_t until_ns);

/*
 * Writes the lines of everything that happened before until_ns (CLOCK_MONOTONIC); UINT64_MAX: of
 * all. dropped: how many events the kernel side has dropped in all, as far as that is known. At
 * give_up_ns it stops, and leaves the rest to the next call. Returns 0, or -errno of writing.
 */
int nt_timeline_write(struct nt_timeline *timeline, uint64_t until_ns, uint64_t dropped,
		      uint64_t give_up_ns);

/*
 * Writes how many events are missing at the end, those that have not been written among them;
 * dropped as above.
 */
int nt_timeline_leave_out(struct nt_timeline *timeline, uint64_t dropped);
