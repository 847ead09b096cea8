// SPDX-License-Identifier: GPL-2.0
#include "aggregate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void nt_aggregate_init(struct nt_aggregate *aggregate)
{
	memset(aggregate, 0, sizeof(*aggregate));
	aggregate->random = 0x9e3779b97f4a7c15ULL;
}

void nt_aggregate_clear(struct nt_aggregate *aggregate)
{
	for (size_t i = 0; i < aggregate->count; i++)
		free(aggregate->connections[i]);
	free(aggregate->connections);
	nt_aggregate_init(aggregate);
}

static bool same_key(const struct nt_connection *c, const struct nt_stall *stall)
{
	return c->side == stall->side && c->cause == stall->record.cause &&
	       c->last.self.tgid == stall->self.tgid &&
	       !memcmp(&nt_stall_self(&c->last)->tuple, &nt_stall_self(stall)->tuple,
		       sizeof(struct nt_tuple));
}

static struct nt_connection *find_or_add(struct nt_aggregate *aggregate,
					 const struct nt_stall *stall)
{
	struct nt_connection *c;

	/* the latest come first in practice: most stalls repeat on one connection */
	for (size_t i = aggregate->count; i--;)
		if (same_key(aggregate->connections[i], stall))
			return aggregate->connections[i];
	if (aggregate->count == NT_MAX_CONNECTIONS)
		return NULL;
	if (!aggregate->connections) {
		aggregate->connections =
			calloc(NT_MAX_CONNECTIONS, sizeof(*aggregate->connections));
		if (!aggregate->connections)
			return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->side = stall->side;
	c->cause = stall->record.cause;
	aggregate->connections[aggregate->count++] = c;
	return c;
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

/* The latest stall, with the peer as it was known before should it be gone by now. */
static void keep_example(struct nt_connection *c, const struct nt_stall *stall)
{
	struct nt_process peer = c->last.peer;

	c->last = *stall;
	if (!c->last.peer.tgid)
		c->last.peer = peer;
}

int nt_aggregate_add(struct nt_aggregate *aggregate, const struct nt_stall *stall)
{
	struct nt_connection *c = find_or_add(aggregate, stall);

	aggregate->stalls++;
	aggregate->lost_ns += stall->excess_ns;
	if (!c) {
		aggregate->folded++;
		return aggregate->count == NT_MAX_CONNECTIONS ? 0 : -ENOMEM;
	}
	add_sample(aggregate, c, stall->duration_ns);
	keep_example(c, stall);
	c->count++;
	c->lost_ns += stall->excess_ns;
	if (stall->duration_ns > c->max_ns)
		c->max_ns = stall->duration_ns;
	c->seen += stall->record.evidence == NT_EVIDENCE_SEEN;
	if (stall->record.pattern < NT_PATTERNS)
		c->patterns[stall->record.pattern]++;
	return 0;
}

static uint64_t lost_by_process(const struct nt_aggregate *aggregate, pid_t tgid)
{
	uint64_t lost = 0;

	for (size_t i = 0; i < aggregate->count; i++)
		if (aggregate->connections[i]->last.self.tgid == tgid)
			lost += aggregate->connections[i]->lost_ns;
	return lost;
}

static int by_lost_time(const void *a, const void *b, void *context)
{
	const struct nt_connection *x = *(struct nt_connection *const *)a;
	const struct nt_connection *y = *(struct nt_connection *const *)b;
	const struct nt_aggregate *aggregate = context;

	if (x->last.self.tgid != y->last.self.tgid) {
		uint64_t p = lost_by_process(aggregate, x->last.self.tgid);
		uint64_t q = lost_by_process(aggregate, y->last.self.tgid);

		if (p != q)
			return p < q ? 1 : -1;
		return x->last.self.tgid < y->last.self.tgid ? -1 : 1;
	}
	return x->lost_ns < y->lost_ns ? 1 : x->lost_ns > y->lost_ns ? -1 : 0;
}

void nt_aggregate_sort(struct nt_aggregate *aggregate)
{
	struct nt_aggregate copy = *aggregate;
	struct nt_connection *connections[NT_MAX_CONNECTIONS];

	if (aggregate->count < 2)
		return;
	/* the comparison sums over the list, which must not move under it */
	memcpy(connections, aggregate->connections, aggregate->count * sizeof(*connections));
	copy.connections = connections;
	qsort_r(aggregate->connections, aggregate->count, sizeof(*aggregate->connections),
		by_lost_time, &copy);
}

static int compare_us(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t nt_connection_percentile(const struct nt_connection *connection, unsigned int percent)
{
	size_t n = connection->count < NT_SAMPLES ? connection->count : NT_SAMPLES;
	uint32_t sorted[NT_SAMPLES];
	size_t rank;

	if (!n)
		return 0;
	memcpy(sorted, connection->samples_us, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_us);
	rank = (n * percent + 99) / 100;
	return sorted[rank ? rank - 1 : 0] * 1000ULL;
}

unsigned int nt_connection_pattern(const struct nt_connection *connection)
{
	unsigned int most = 0;

	for (unsigned int i = 1; i < NT_PATTERNS; i++)
		if (connection->patterns[i] > connection->patterns[most])
			most = i;
	return most;
}
