// SPDX-License-Identifier: GPL-2.0
#include "summary/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Returns 0 if both have one problem. */
static int by_problem(const struct nt_connection *a, const struct nt_connection *b)
{
	int order = strncmp(nt_stall_process(&a->last, a->last.side)->comm,
			    nt_stall_process(&b->last, b->last.side)->comm, NT_USER_LEN);

	if (!order)
		order = compare(a->key.side, b->key.side);
	if (!order)
		order = compare(a->key.cause, b->key.cause);
	if (!order)
		order = compare(a->key.reason, b->key.reason);
	if (!order)
		order = compare(nt_connection_pattern(a), nt_connection_pattern(b));
	return order;
}

static int by_problem_and_process(const void *a, const void *b)
{
	const struct nt_connection *x = *(struct nt_connection *const *)a;
	const struct nt_connection *y = *(struct nt_connection *const *)b;
	int order = by_problem(x, y);

	return order ? order : compare(x->key.tgid, y->key.tgid);
}

static int most_first(const void *a, const void *b)
{
	return compare(((const struct nt_group *)b)->excess_ns,
		       ((const struct nt_group *)a)->excess_ns);
}

struct nt_group nt_group_of(struct nt_connection *const *connections, size_t count)
{
	struct nt_group group = {.connections = connections, .count = count, .processes = 1};

	group.pattern = nt_connection_pattern(connections[0]);
	for (size_t i = 0; i < count; i++) {
		const struct nt_connection *c = connections[i];

		group.stalls += c->count;
		group.seen += c->seen;
		group.excess_ns += c->excess_ns;
		if (c->max_ns > group.max_ns)
			group.max_ns = c->max_ns;
	}
	return group;
}

/* Makes a group of the connections from this one on; they are ordered by process. */
static struct nt_group next_group(struct nt_connection **connections, size_t left)
{
	size_t count = 1, processes = 1;
	struct nt_group group;

	for (; count < left && !by_problem(connections[0], connections[count]); count++)
		processes += connections[count]->key.tgid != connections[count - 1]->key.tgid;
	qsort(connections, count, sizeof(*connections), nt_most_excess_first);
	group = nt_group_of(connections, count);
	group.processes = processes;
	return group;
}

int nt_groups_make(struct nt_groups *groups, const struct nt_aggregate *aggregate)
{
	size_t n = nt_aggregate_count(aggregate), i = 0;

	memset(groups, 0, sizeof(*groups));
	if (!n)
		return 0;
	groups->connections = calloc(n, sizeof(*groups->connections));
	groups->list = calloc(n, sizeof(*groups->list));
	if (!groups->connections || !groups->list) {
		nt_groups_free(groups);
		return -ENOMEM;
	}
	for (struct nt_connection *c = aggregate->connections; c; c = c->hh.next)
		groups->connections[i++] = c;
	qsort(groups->connections, n, sizeof(*groups->connections), by_problem_and_process);
	for (i = 0; i < n; i += groups->list[groups->count++].count)
		groups->list[groups->count] = next_group(&groups->connections[i], n - i);
	qsort(groups->list, groups->count, sizeof(*groups->list), most_first);
	return 0;
}

void nt_groups_free(struct nt_groups *groups)
{
	free(groups->connections);
	free(groups->list);
	memset(groups, 0, sizeof(*groups));
}
