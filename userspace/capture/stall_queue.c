// SPDX-License-Identifier: GPL-2.0
#include "capture/stall_queue.h"

#include <stdlib.h>

#include "base/clock.h"

/* How long a stall's line waits for names; later ones appear only in the reports. */
#define WAIT_NS NT_SECOND_NS

/* If more stalls queue up than this (0.9 MB), the first ones wait no longer. */
#define MOST 1000

struct nt_queued_stall {
	struct nt_stall stall; /* first, so that freeing it frees both */
	uint64_t until_ns;
	struct nt_queued_stall *next;
};

bool nt_stall_queue_add(struct nt_stall_queue *queue, const struct nt_stall *stall)
{
	struct nt_queued_stall *q = malloc(sizeof(*q));

	if (!q)
		return false;
	q->stall = *stall;
	q->until_ns = nt_now_ns() + WAIT_NS;
	q->next = NULL;
	if (queue->last)
		queue->last->next = q;
	else
		queue->first = q;
	queue->last = q;
	queue->count++;
	return true;
}

struct nt_stall *nt_stall_queue_take(struct nt_stall_queue *queue, const struct nt_stacks *stacks,
				     bool all)
{
	struct nt_queued_stall *q = queue->first;

	if (!q || (!all && queue->count <= MOST && nt_now_ns() < q->until_ns &&
		   nt_stacks_waits(stacks, q->stall.record.hold.stack_id)))
		return NULL;
	queue->first = q->next;
	if (!queue->first)
		queue->last = NULL;
	queue->count--;
	return &q->stall;
}

uint64_t nt_stall_queue_time_ns(const struct nt_stall_queue *queue)
{
	return queue->first ? queue->first->stall.record.time_ns : UINT64_MAX;
}

uint64_t nt_stall_queue_until_ns(const struct nt_stall_queue *queue)
{
	return queue->first ? queue->first->until_ns : UINT64_MAX;
}

void nt_stall_queue_clear(struct nt_stall_queue *queue)
{
	struct nt_stall *stall;

	while ((stall = nt_stall_queue_take(queue, NULL, true)))
		free(stall);
}
