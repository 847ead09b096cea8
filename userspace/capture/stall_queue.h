/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stalls that wait for the names of their stacks, to be reported in one line with them. They stay
 * in order: a stall without a stack waits behind one that has one.
 */
#pragma once

#include "capture/stacks.h"
#include "capture/stall.h"

struct nt_queued_stall;

struct nt_stall_queue {
	struct nt_queued_stall *first, *last;
	size_t count;
};

/* Adds a copy to the end of the queue. False: no memory. */
bool nt_stall_queue_add(struct nt_stall_queue *queue, const struct nt_stall *stall);

/*
 * Returns the next stall that need not wait any more, or any if all is set; the caller frees it.
 * NULL: there is none.
 */
struct nt_stall *nt_stall_queue_take(struct nt_stall_queue *queue, const struct nt_stacks *stacks,
				     bool all);

/*
 * The first returns when the first stall ended, UINT64_MAX if there is none; the second, when it
 * has waited enough.
 */
uint64_t nt_stall_queue_time_ns(const struct nt_stall_queue *queue);
uint64_t nt_stall_queue_until_ns(const struct nt_stall_queue *queue);

void nt_stall_queue_clear(struct nt_stall_queue *queue);
