// SPDX-License-Identifier: GPL-2.0
#include "sample/estimate.h"

#include <stdlib.h>
#include <string.h>

#define US 1000000ULL

void nt_estimate_clear(struct nt_estimate *estimate)
{
	struct nt_seen *seen, *next;

	HASH_ITER(hh, estimate->seen, seen, next)
	{
		HASH_DEL(estimate->seen, seen);
		free(seen);
	}
	memset(estimate, 0, sizeof(*estimate));
}

/*
 * A prompt ACK may not explain this hold, as nt_late_evidence() in bpf/judge.h asks it: a round
 * trip is known, no loss is being recovered from, and less than two full segments are in flight,
 * for no receiver delays the ACK of these.
 */
static bool may_be_late(const struct nt_sampled *sampled)
{
	return sampled->reason == NT_HOLD_NAGLE && !sampled->recovering &&
	       sampled->end.min_rtt_us && sampled->in_flight_bytes < 2 * sampled->mss;
}

uint64_t nt_sampled_late_ns(const struct nt_sampled *sampled)
{
	uint64_t rtt_ns = sampled->end.min_rtt_us * 1000ULL;

	return may_be_late(sampled) && sampled->silent_ns > rtt_ns ? sampled->silent_ns - rtt_ns
								   : 0;
}

bool nt_sampled_may_stall_in(const struct nt_sampled *sampled, uint64_t ns)
{
	uint64_t rtt_ns = sampled->end.min_rtt_us * 1000ULL;

	return may_be_late(sampled) && sampled->silent_ns + ns >= rtt_ns + NT_LATE_NS;
}

bool nt_sampled_is_suspicious(const struct nt_sampled *sampled)
{
	if (sampled->reason == NT_HOLD_CORK || sampled->reason == NT_HOLD_MSG_MORE)
		return sampled->untouched_ns >= NT_LONG_CORK_NS;
	return nt_sampled_weight(sampled);
}

/*
 * Returns what a look at a stall counts for. A look before NT_LATE_NS proves nothing, so those up
 * to twice that stand for them too. But if the application has written since the segment in flight
 * went out, the hold may be younger than the silence, and the look counts for itself alone.
 */
uint64_t nt_sampled_weight(const struct nt_sampled *sampled)
{
	const uint64_t jiffies_apart_ns = 10000000; /* at HZ=100 */
	uint64_t late_ns = nt_sampled_late_ns(sampled);

	if (late_ns < NT_LATE_NS)
		return 0;
	if (sampled->untouched_ns + jiffies_apart_ns < sampled->silent_ns)
		return 1;
	return late_ns < 2 * NT_LATE_NS ? 2 : 1;
}

/* Forgets the oldest connection that nobody asked for, or that never waited for a late ACK. Returns
 * false if there is none. */
static bool make_room(struct nt_estimate *estimate)
{
	struct nt_seen *seen = estimate->seen;

	while (seen && seen->wanted != NT_WANTED_NO && nt_seen_late(seen).looks)
		seen = seen->hh.next;
	if (!seen)
		return false;
	HASH_DEL(estimate->seen, seen);
	free(seen);
	return true;
}

static struct nt_seen *find_or_make(struct nt_estimate *estimate, const struct nt_sampled *sampled)
{
	struct nt_socket_key key = nt_socket_key_of(&sampled->end);
	struct nt_seen *seen;

	HASH_FIND(hh, estimate->seen, &key, sizeof(key), seen);
	if (seen || (HASH_COUNT(estimate->seen) >= NT_MOST_SEEN && !make_room(estimate)))
		return seen;
	seen = calloc(1, sizeof(*seen));
	if (!seen)
		return NULL;
	seen->key = key;
	HASH_ADD(hh, estimate->seen, key, sizeof(seen->key), seen);
	if (seen->hh.tbl)
		return seen;
	free(seen);
	return NULL;
}

/*
 * A connection is shown as it was last found late, or if it never was, as it was seen last; with
 * the longest hold for that reason.
 */
static void note_shown(struct nt_seen *seen, const struct nt_sampled *sampled, uint64_t weight)
{
	if (weight || !nt_seen_late(seen).looks) {
		if (seen->last.reason != sampled->reason)
			seen->longest_ns = 0;
		seen->last = *sampled;
	}
	if (seen->last.reason == sampled->reason && seen->longest_ns < sampled->untouched_ns)
		seen->longest_ns = sampled->untouched_ns;
}

static void add_late(struct nt_late_looks *to, const struct nt_late_looks *looks)
{
	to->looks += looks->looks;
	to->weight += looks->weight;
	to->squares += looks->squares;
	if (to->latest_ns < looks->latest_ns)
		to->latest_ns = looks->latest_ns;
}

/*
 * Has the hold of the looks before ended? A delayed ACK comes by itself. Where only data came
 * since, it brought the ACK along, as the tracer's "piggyback": that was no stall.
 */
static void end_hold(struct nt_seen *seen, const struct nt_sampled *now)
{
	const struct nt_late_looks none = {};
	bool ack_came = now->acks_came != seen->acks_came;

	if (!ack_came && now->data_came == seen->data_came)
		return;
	if (ack_came)
		add_late(&seen->ended, &seen->open);
	else if (seen->open.looks)
		seen->ended_by_data = true;
	seen->open = none;
	seen->data_came = now->data_came;
	seen->acks_came = now->acks_came;
}

struct nt_seen *nt_estimate_add(struct nt_estimate *estimate, const struct nt_sampled *sampled)
{
	struct nt_seen *seen = find_or_make(estimate, sampled);
	uint64_t late_ns = nt_sampled_late_ns(sampled), weight = nt_sampled_weight(sampled);

	if (!seen) {
		estimate->folded++;
		return NULL;
	}
	end_hold(seen, sampled);
	note_shown(seen, sampled, weight);
	seen->looks++;
	add_late(&seen->open, &(struct nt_late_looks){!!weight, weight, weight * weight, late_ns});
	seen->idle_looks += sampled->reason == NT_HOLD_UNKNOWN && !sampled->in_flight_bytes;
	return seen;
}

struct nt_late_looks nt_seen_late(const struct nt_seen *seen)
{
	struct nt_late_looks late = seen->ended;

	/* where data ended others, it may well end the last one too */
	if (!seen->ended_by_data)
		add_late(&late, &seen->open);
	return late;
}

bool nt_seen_stalls(const struct nt_seen *seen)
{
	struct nt_late_looks late = nt_seen_late(seen);

	/* a corked connection with bytes in flight looks like Nagle's to sock_diag */
	return late.weight && 4 * seen->idle_looks < seen->looks &&
	       (late.looks < NT_SEEN_ENOUGH || late.latest_ns >= NT_SLOW_PATH_NS);
}

/* Newton's method; rounds down. */
static uint64_t square_root(uint64_t n)
{
	uint64_t root = n, next = (n + 1) / 2;

	while (next < root) {
		root = next;
		next = (root + n / root) / 2;
	}
	return root;
}

/*
 * Twice the standard error, of independent looks. After few sightings, or none, that is too little:
 * what shows up in none of n looks takes less than 3/n of the time, at 95 % confidence.
 */
static uint64_t error_us(uint64_t variance_us2, uint64_t looks)
{
	uint64_t error = 2 * square_root(variance_us2 / looks), least = 3 * US / looks;

	return error > least ? error : least;
}

/* Of what single looks found, in us squared. */
static uint64_t variance_of(const struct nt_seen *seen, uint64_t looks)
{
	struct nt_late_looks late = nt_seen_late(seen);
	uint64_t mean = late.weight * US / looks, squares = late.squares * US / looks * US;

	/* a look may list a connection twice, while the kernel changes its table */
	return squares > mean * mean ? squares - mean * mean : 0;
}

/* A connection cannot lose more than a second a second, though looks that count double may say so.
 */
static uint64_t excess_us(const struct nt_seen *seen, uint64_t looks)
{
	uint64_t us = nt_seen_late(seen).weight * US / looks;

	return us < US ? us : US;
}

struct nt_excess nt_seen_excess(const struct nt_seen *seen, uint64_t looks)
{
	struct nt_excess excess = {};

	if (!looks || !nt_seen_stalls(seen))
		return excess;
	excess.us = excess_us(seen, looks);
	excess.error_us = error_us(variance_of(seen, looks), looks);
	return excess;
}

struct nt_excess nt_estimate_excess(const struct nt_estimate *estimate)
{
	const struct nt_seen *seen;
	struct nt_excess excess = {};
	uint64_t variance = 0;

	if (!estimate->looks)
		return excess;
	for (seen = estimate->seen; seen; seen = seen->hh.next) {
		if (seen->wanted != NT_WANTED_YES || !nt_seen_stalls(seen))
			continue;
		excess.us += excess_us(seen, estimate->looks);
		variance += variance_of(seen, estimate->looks);
	}
	excess.error_us = error_us(variance, estimate->looks);
	return excess;
}

static int compare(const void *left, const void *right)
{
	const struct nt_seen *a = *(struct nt_seen *const *)left;
	const struct nt_seen *b = *(struct nt_seen *const *)right;
	uint64_t excess_a = nt_seen_stalls(a) ? nt_seen_late(a).weight : 0;
	uint64_t excess_b = nt_seen_stalls(b) ? nt_seen_late(b).weight : 0;

	if (excess_a != excess_b)
		return excess_a < excess_b ? 1 : -1;
	return a->looks < b->looks ? 1 : a->looks > b->looks ? -1 : 0;
}

struct nt_seen **nt_estimate_sorted(const struct nt_estimate *estimate, size_t *count)
{
	struct nt_seen **list, *seen;

	*count = 0;
	list = malloc((HASH_COUNT(estimate->seen) + 1) * sizeof(struct nt_seen *));
	for (seen = estimate->seen; list && seen; seen = seen->hh.next)
		if (seen->wanted == NT_WANTED_YES)
			list[(*count)++] = seen;
	if (list)
		qsort(list, *count, sizeof(*list), compare);
	return list;
}
