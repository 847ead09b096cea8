// SPDX-License-Identifier: GPL-2.0
#include "summary/aggregate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void nt_aggregate_init(struct nt_aggregate *aggregate, size_t most)
{
	memset(aggregate, 0, sizeof(*aggregate));
	aggregate->most = most;
	aggregate->random = 0x9e3779b97f4a7c15ULL;
}

static void drop(struct nt_aggregate *aggregate, struct nt_connection *c)
{
	HASH_DEL(aggregate->connections, c);
	aggregate->shares.count[c->share]--;
	free(c);
}

void nt_aggregate_clear(struct nt_aggregate *aggregate)
{
	while (aggregate->connections)
		drop(aggregate, aggregate->connections);
	nt_aggregate_init(aggregate, aggregate->most);
}

size_t nt_aggregate_count(const struct nt_aggregate *aggregate)
{
	return HASH_COUNT(aggregate->connections);
}

static struct nt_connection_key key_of(const struct nt_stall *stall)
{
	struct nt_connection_key key;

	memset(&key, 0, sizeof(key));
	key.tuple = nt_stall_end(stall, stall->side)->tuple;
	key.tgid = nt_stall_process(stall, stall->side)->tgid;
	key.side = stall->side;
	key.cause = stall->record.cause;
	key.reason = nt_record_reason(&stall->record);
	return key;
}

static void fold(struct nt_aggregate *aggregate, struct nt_connection *c)
{
	aggregate->folded += c->count;
	drop(aggregate, c);
}

/*
 * The least recently stalled connection makes room: one of the share that has most, or of this
 * share if none has more.
 */
static void make_room(struct nt_aggregate *aggregate, unsigned int share)
{
	unsigned int largest = nt_shares_largest(&aggregate->shares);
	struct nt_connection *c = aggregate->connections;

	if (aggregate->shares.count[largest] == aggregate->shares.count[share])
		largest = share;
	while (c->share != largest)
		c = c->hh.next;
	fold(aggregate, c);
}

/* The same until no more are left than there is room for, in one pass. */
static void make_room_for_rest(struct nt_aggregate *aggregate)
{
	struct nt_connection *c = aggregate->connections, *next;
	uint32_t limit = nt_shares_limit(&aggregate->shares, aggregate->most);

	for (; nt_aggregate_count(aggregate) > aggregate->most; c = next) {
		next = c->hh.next;
		if (aggregate->shares.count[c->share] > limit)
			fold(aggregate, c);
	}
}

/*
 * Returns the connection with this key, which stalled at time_ns. It moves to the end of the order,
 * but once in NT_RENEW_NS only. NULL: no memory.
 */
static struct nt_connection *find_or_add(struct nt_aggregate *aggregate,
					 const struct nt_connection_key *key, unsigned int share,
					 uint64_t time_ns)
{
	struct nt_connection *c;

	HASH_FIND(hh, aggregate->connections, key, sizeof(*key), c);
	if (c && (!c->hh.next || time_ns < c->moved_ns + NT_RENEW_NS))
		return c;
	if (c) {
		HASH_DEL(aggregate->connections, c);
	} else {
		if (nt_aggregate_count(aggregate) >= aggregate->most)
			make_room(aggregate, share);
		c = calloc(1, sizeof(*c));
		if (!c)
			return NULL;
		c->key = *key;
		c->share = share;
		aggregate->shares.count[share]++;
	}
	c->moved_ns = time_ns;
	HASH_ADD(hh, aggregate->connections, key, sizeof(c->key), c);
	if (c->hh.tbl)
		return c;
	aggregate->shares.count[c->share]--;
	aggregate->folded += c->count;
	free(c);
	return NULL;
}

/* xorshift64: any even spread does for choosing which sample to replace. */
static uint64_t next_random(struct nt_aggregate *aggregate)
{
	uint64_t x = aggregate->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return aggregate->random = x;
}

/* Reservoir sampling: each of the durations has the same chance to be among those kept. */
static void add_sample(struct nt_aggregate *aggregate, struct nt_connection *c,
		       uint64_t duration_ns)
{
	uint64_t at = c->count < NT_SAMPLES ? c->count : next_random(aggregate) % (c->count + 1);

	if (at < NT_SAMPLES)
		c->samples_us[at] =
			duration_ns / 1000 > UINT32_MAX ? UINT32_MAX : duration_ns / 1000;
}

/*
 * Keeps the latest stall. If the process of its other end is gone by now, the one that an earlier
 * stall had stays.
 */
static void keep_example(struct nt_connection *c, const struct nt_stall *stall)
{
	struct nt_process *other =
		stall->side == NT_SIDE_SENDER ? &c->last.receiver : &c->last.sender;
	struct nt_process known = *other;

	c->last = *stall;
	if (!other->tgid)
		*other = known;
}

int nt_aggregate_add(struct nt_aggregate *aggregate, const struct nt_stall *stall)
{
	struct nt_connection_key key = key_of(stall);
	struct nt_connection *c =
		find_or_add(aggregate, &key, nt_share_place(nt_record_share(&stall->record)),
			    stall->record.time_ns);

	aggregate->stalls++;
	aggregate->excess_ns += stall->excess_ns;
	if (!c) {
		aggregate->folded++;
		return -ENOMEM;
	}
	add_sample(aggregate, c, stall->duration_ns);
	keep_example(c, stall);
	if (!c->count) {
		c->first_ns = stall->record.time_ns;
		c->first_excess_ns = stall->excess_ns;
	}
	c->count++;
	c->excess_ns += stall->excess_ns;
	if (stall->duration_ns > c->max_ns)
		c->max_ns = stall->duration_ns;
	c->seen += stall->record.evidence == NT_EVIDENCE_SEEN;
	if (stall->record.pattern < NT_PATTERNS)
		c->patterns[stall->record.pattern]++;
	return 0;
}

/* Returns how many of a connection's durations are kept. */
static size_t kept_samples(const struct nt_connection *c)
{
	return c->count < NT_SAMPLES ? c->count : NT_SAMPLES;
}

/* Keeps durations of both in proportion to their stalls, spread over those that each kept. */
static void merge_samples(struct nt_connection *c, const struct nt_connection *from)
{
	size_t had = kept_samples(c), has = kept_samples(from);
	bool all = had + has <= NT_SAMPLES;
	size_t taken = all ? has : NT_SAMPLES * from->count / (c->count + from->count);
	size_t stay = all ? had : NT_SAMPLES - taken;

	for (size_t i = 0; i < stay; i++)
		c->samples_us[i] = c->samples_us[i * had / stay];
	for (size_t i = 0; i < taken; i++)
		c->samples_us[stay + i] = from->samples_us[i * has / taken];
}

static void merge(struct nt_connection *c, const struct nt_connection *from)
{
	merge_samples(c, from);
	keep_example(c, &from->last);
	if (!c->count) {
		c->first_ns = from->first_ns;
		c->first_excess_ns = from->first_excess_ns;
	}
	c->count += from->count;
	c->excess_ns += from->excess_ns;
	if (from->max_ns > c->max_ns)
		c->max_ns = from->max_ns;
	c->seen += from->seen;
	for (size_t i = 0; i < NT_PATTERNS; i++)
		c->patterns[i] += from->patterns[i];
}

void nt_aggregate_merge(struct nt_aggregate *aggregate, const struct nt_aggregate *later)
{
	size_t most = aggregate->most;

	aggregate->stalls += later->stalls;
	aggregate->excess_ns += later->excess_ns;
	aggregate->folded += later->folded;
	/* what stalled later too is not to make room for others before */
	aggregate->most = SIZE_MAX;
	for (const struct nt_connection *from = later->connections; from; from = from->hh.next) {
		struct nt_connection *c =
			find_or_add(aggregate, &from->key, from->share, from->last.record.time_ns);

		if (c)
			merge(c, from);
		else
			aggregate->folded += from->count;
	}
	aggregate->most = most;
	make_room_for_rest(aggregate);
}

static int by_process(const void *a, const void *b)
{
	const struct nt_connection *x = *(struct nt_connection *const *)a;
	const struct nt_connection *y = *(struct nt_connection *const *)b;

	return x->key.tgid < y->key.tgid ? -1 : x->key.tgid > y->key.tgid;
}

int nt_most_excess_first(const void *a, const void *b)
{
	uint64_t x = (*(struct nt_connection *const *)a)->excess_ns;
	uint64_t y = (*(struct nt_connection *const *)b)->excess_ns;

	return x < y ? 1 : x > y ? -1 : 0;
}

static int by_excess(const void *a, const void *b)
{
	const struct nt_connection *x = *(struct nt_connection *const *)a;
	const struct nt_connection *y = *(struct nt_connection *const *)b;

	if (x->process_excess_ns != y->process_excess_ns)
		return x->process_excess_ns < y->process_excess_ns ? 1 : -1;
	if (x->key.tgid != y->key.tgid)
		return by_process(a, b);
	return nt_most_excess_first(a, b);
}

/* Gives each connection the sum of its process; the list must be ordered by process. */
static void sum_by_process(struct nt_connection **list, size_t n)
{
	size_t end;

	for (size_t begin = 0; begin < n; begin = end) {
		uint64_t excess_ns = 0;

		for (end = begin; end < n && !by_process(&list[begin], &list[end]); end++)
			excess_ns += list[end]->excess_ns;
		for (size_t i = begin; i < end; i++)
			list[i]->process_excess_ns = excess_ns;
	}
}

static struct nt_connection **list_them(const struct nt_aggregate *aggregate)
{
	size_t n = nt_aggregate_count(aggregate), i = 0;
	struct nt_connection **list = n ? calloc(n, sizeof(*list)) : NULL;

	for (struct nt_connection *c = aggregate->connections; list && c; c = c->hh.next)
		list[i++] = c;
	return list;
}

struct nt_connection **nt_aggregate_sorted(const struct nt_aggregate *aggregate)
{
	struct nt_connection **list = list_them(aggregate);
	size_t n = nt_aggregate_count(aggregate);

	if (!list)
		return NULL;
	qsort(list, n, sizeof(*list), by_process);
	sum_by_process(list, n);
	qsort(list, n, sizeof(*list), by_excess);
	return list;
}

struct nt_connection **nt_aggregate_costly(const struct nt_aggregate *aggregate)
{
	struct nt_connection **list = list_them(aggregate);

	if (list)
		qsort(list, nt_aggregate_count(aggregate), sizeof(*list), nt_most_excess_first);
	return list;
}

static int compare_us(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* The most durations that are looked at, of many connections together, or one of each. */
#define MOST_SAMPLES 16384

/* A duration that we kept, and how many stalls it represents. */
struct weighted {
	uint32_t us;
	double stalls;
};

static int compare_weighted(const void *a, const void *b)
{
	return compare_us(&((const struct weighted *)a)->us, &((const struct weighted *)b)->us);
}

uint64_t nt_percentile(struct nt_connection *const *connections, size_t count, unsigned int percent)
{
	size_t most = count * NT_SAMPLES < MOST_SAMPLES ? NT_SAMPLES : 1 + MOST_SAMPLES / count;
	struct weighted *all = calloc(count * most, sizeof(*all));
	double left = 0;
	size_t n = 0, at = 0;
	uint64_t us;

	for (size_t i = 0; all && i < count; i++) {
		const struct nt_connection *c = connections[i];
		size_t kept = kept_samples(c);
		size_t taken = kept < most ? kept : most; /* spread over those that are kept */

		for (size_t k = 0; k < taken; k++)
			all[n++] = (struct weighted){c->samples_us[k * kept / taken],
						     (double)c->count / taken};
		left += c->count;
	}
	if (n)
		qsort(all, n, sizeof(*all), compare_weighted);
	for (left = left * percent / 100; at + 1 < n && left > all[at].stalls; at++)
		left -= all[at].stalls;
	us = n ? all[at].us : 0;
	free(all);
	return us * 1000;
}

uint64_t nt_aggregate_percentile(const struct nt_aggregate *aggregate, unsigned int percent)
{
	struct nt_connection **all = list_them(aggregate);
	uint64_t ns = all ? nt_percentile(all, nt_aggregate_count(aggregate), percent) : 0;

	free(all);
	return ns;
}

unsigned int nt_connection_pattern(const struct nt_connection *connection)
{
	unsigned int most = 0;

	for (unsigned int i = 1; i < NT_PATTERNS; i++)
		if (connection->patterns[i] > connection->patterns[most])
			most = i;
	return most;
}
