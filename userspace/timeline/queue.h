/* SPDX-License-Identifier: GPL-2.0 */
/* Events that wait for earlier ones of other CPUs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bpf/nagletrace.h"

struct nt_queued_event;

struct nt_event_queue {
	struct nt_queued_event *list;
	size_t count, room;
	uint64_t places; /* events so far */
	bool sorted;     /* nothing was added since it was sorted */
};

/* Adds a copy of the event. Returns 0 or -ENOMEM. */
int nt_event_queue_add(struct nt_event_queue *queue, const struct nt_event *event);

/* Sorts the events by time, and returns how many happened before until_ns (CLOCK_MONOTONIC). */
size_t nt_event_queue_sort(struct nt_event_queue *queue, uint64_t until_ns);
const struct nt_event *nt_event_queue_get(const struct nt_event_queue *queue, size_t i);

/*
 * Returns the first event from this one on that shows which process uses its socket; NULL: none
 * does yet.
 */
const struct nt_event *nt_event_queue_user(const struct nt_event_queue *queue,
					   const struct nt_event *of);

/* Removes the first n events. */
void nt_event_queue_remove(struct nt_event_queue *queue, size_t n);
void nt_event_queue_free(struct nt_event_queue *queue);
