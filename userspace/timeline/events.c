// SPDX-License-Identifier: GPL-2.0
#include "timeline/events.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "nagletrace.skel.h"

/*
 * The most events that wait to be written; the others wait in the ring buffer. With those of one
 * slice of time they take 11 MB at most.
 */
#define ENOUGH_QUEUED 16384

static int on_event(void *context, void *data, size_t size)
{
	struct nt_timeline_events *events = context;
	const struct nt_event *event = data;

	if (size < sizeof(*event) || event->size != sizeof(*event))
		return 0;
	if (events->leaves_out)
		events->left_out++;
	else
		nt_timeline_add(events->timeline, event);
	events->newest_ns = event->time_ns;
	return nt_now_ns() > events->pause_ns ? -EINTR : 0;
}

int nt_timeline_events_open(struct nt_timeline_events *events, struct nt_session *session,
			    nt_line_writer *write, void *context)
{
	memset(events, 0, sizeof(*events));
	events->session = session;
	events->timeline = nt_timeline_new(session->settings, &session->owners, write, context);
	if (!events->timeline)
		return -ENOMEM;
	events->ring = ring_buffer__new(bpf_map__fd(session->tracer.skel->maps.events), on_event,
					events, NULL);
	return events->ring ? 0 : -errno;
}

void nt_timeline_events_close(struct nt_timeline_events *events)
{
	ring_buffer__free(events->ring);
	nt_timeline_free(events->timeline);
	memset(events, 0, sizeof(*events));
}

static bool has_room(const struct nt_timeline_events *events)
{
	return nt_timeline_queued(events->timeline) < ENOUGH_QUEUED;
}

/* Takes events for a slice of time if there is room, and sets more. */
static void take(struct nt_timeline_events *events)
{
	events->more = true;
	events->pause_ns = nt_now_ns() + NT_SLICE_NS;
	if (has_room(events))
		events->more = ring_buffer__consume(events->ring) == -EINTR;
}

bool nt_timeline_events_consume(struct nt_timeline_events *events, uint64_t *until_ns)
{
	uint64_t queued_ns = nt_stall_queue_time_ns(&events->session->queue);

	/* a stall stands behind the events that led to it, and before those that came after */
	if (*until_ns > queued_ns)
		*until_ns = queued_ns;
	take(events);
	if (events->more && *until_ns > events->newest_ns)
		*until_ns = events->newest_ns;
	events->until_ns = *until_ns;
	return nt_timeline_waits(events->timeline, *until_ns);
}

static uint64_t dropped(const struct nt_timeline_events *events)
{
	return events->session->tracer.skel->bss->events_dropped;
}

int nt_timeline_events_write(struct nt_timeline_events *events, uint64_t until_ns,
			     uint64_t give_up_ns)
{
	return nt_timeline_write(events->timeline, until_ns, dropped(events), give_up_ns);
}

/* Counts those for which there was no time. */
static int leave_out(struct nt_timeline_events *events)
{
	nt_log("timeline: events came faster than they were written; the last ones are left "
	       "out");
	events->leaves_out = true;
	events->pause_ns = nt_now_ns() + NT_SLICE_NS;
	ring_buffer__consume(events->ring);
	return nt_timeline_leave_out(events->timeline, dropped(events) + events->left_out);
}

int nt_timeline_events_finish(struct nt_timeline_events *events, uint64_t give_up_ns)
{
	uint64_t ended_ns = nt_now_ns();
	bool more;
	int err;

	do {
		take(events);
		more = events->more && events->newest_ns < ended_ns;
		err = nt_timeline_events_write(events, more ? events->newest_ns : UINT64_MAX,
					       give_up_ns);
	} while (!err && more && nt_now_ns() < give_up_ns);
	return !err && (more || nt_timeline_queued(events->timeline)) ? leave_out(events) : err;
}

bool nt_timeline_events_wait(struct nt_timeline_events *events)
{
	return (events->more && has_room(events)) ||
	       nt_timeline_waits(events->timeline, events->until_ns);
}
