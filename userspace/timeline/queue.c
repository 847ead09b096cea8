// SPDX-License-Identifier: GPL-2.0
#include "timeline/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#define LOOK_BACK 256 /* events among which we look for a write's segments */

struct nt_queued_event {
	struct nt_event event;
	uint64_t place; /* orders events of the same time as they came */
};

int nt_event_queue_add(struct nt_event_queue *queue, const struct nt_event *event)
{
	if (queue->count == queue->room &&
	    nt_grow(&queue->list, &queue->room, sizeof(*queue->list)))
		return -ENOMEM;
	queue->list[queue->count++] = (struct nt_queued_event){*event, queue->places++};
	queue->sorted = false;
	return 0;
}

/*
 * The kernel side reports a write when it returns, after its bytes were sent or held: we move it
 * before that.
 */
static void place_write(struct nt_event_queue *queue, size_t place)
{
	struct nt_event *w = &queue->list[place].event;
	size_t first = place > LOOK_BACK ? place - LOOK_BACK : 0;

	for (size_t i = place; i-- > first;) {
		const struct nt_event *e = &queue->list[i].event;

		/* a segment may begin with bytes that an earlier write left behind */
		if (e->sk == w->sk &&
		    (e->kind == NT_EVENT_SENT || e->kind == NT_EVENT_HOLD_BEGIN) &&
		    (int32_t)(e->seq + e->bytes - w->seq) > 0 &&
		    (int32_t)(w->seq + w->bytes - e->seq) > 0 && e->time_ns <= w->time_ns)
			w->time_ns = e->time_ns - 1;
	}
}

/*
 * If the kernel side noticed a hold only as it ended, the hold's start has the time of that look,
 * which is later than the ACK that ended it: we move the end to that time.
 */
static void place_hold_end(struct nt_event_queue *queue, size_t place)
{
	struct nt_event *end = &queue->list[place].event;
	size_t first = place > LOOK_BACK ? place - LOOK_BACK : 0;

	for (size_t i = place; i-- > first;) {
		const struct nt_event *e = &queue->list[i].event;

		if (e->sk != end->sk || e->kind != NT_EVENT_HOLD_BEGIN)
			continue;
		if (end->time_ns < e->time_ns)
			end->time_ns = e->time_ns;
		return;
	}
}

static int compare(const void *a, const void *b)
{
	const struct nt_queued_event *x = a, *y = b;

	if (x->event.time_ns != y->event.time_ns)
		return x->event.time_ns < y->event.time_ns ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;
}

static void sort(struct nt_event_queue *queue)
{
	if (queue->sorted)
		return;
	for (size_t i = 0; i < queue->count; i++) {
		if (queue->list[i].event.kind == NT_EVENT_WRITE)
			place_write(queue, i);
		else if (queue->list[i].event.kind == NT_EVENT_HOLD_END)
			place_hold_end(queue, i);
	}
	if (queue->count)
		qsort(queue->list, queue->count, sizeof(*queue->list), compare);
	queue->sorted = true;
}

size_t nt_event_queue_sort(struct nt_event_queue *queue, uint64_t until_ns)
{
	size_t n = 0;

	sort(queue);
	while (n < queue->count && queue->list[n].event.time_ns < until_ns)
		n++;
	return n;
}

const struct nt_event *nt_event_queue_get(const struct nt_event_queue *queue, size_t i)
{
	return &queue->list[i].event;
}

const struct nt_event *nt_event_queue_user(const struct nt_event_queue *queue,
					   const struct nt_event *of)
{
	for (size_t i = 0; i < queue->count; i++) {
		const struct nt_event *e = &queue->list[i].event;

		if (e->sk == of->sk && e->tgid && e->time_ns >= of->time_ns &&
		    !memcmp(&e->tuple, &of->tuple, sizeof(e->tuple)))
			return e;
	}
	return NULL;
}

void nt_event_queue_remove(struct nt_event_queue *queue, size_t n)
{
	queue->count -= n;
	if (queue->count)
		memmove(queue->list, queue->list + n, queue->count * sizeof(*queue->list));
}

void nt_event_queue_free(struct nt_event_queue *queue)
{
	free(queue->list);
	memset(queue, 0, sizeof(*queue));
}
