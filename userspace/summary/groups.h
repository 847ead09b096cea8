/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Puts together the connections that have one problem: their programs have the same name, and they
 * stall at the same end, for the same cause, with the same pattern. A program that forks or
 * reconnects has many of them.
 */
#pragma once

#include "summary/aggregate.h"

struct nt_group {
	struct nt_connection *const *connections; /* by lost time, most first */
	size_t count;
	size_t processes;
	unsigned int pattern; /* enum nt_pattern */
	uint64_t stalls;
	uint64_t seen; /* of stalls, with evidence `seen` */
	uint64_t excess_ns;
	uint64_t max_ns;
};

struct nt_groups {
	struct nt_connection **connections;
	struct nt_group *list; /* by lost time, most first */
	size_t count;
};

/*
 * Fills *groups from the connections that the aggregate keeps; nt_groups_free() frees it. It is
 * valid until the next stall is added. Returns 0, or -ENOMEM: there are no groups then.
 */
int nt_groups_make(struct nt_groups *groups, const struct nt_aggregate *aggregate);
void nt_groups_free(struct nt_groups *groups);

/* Returns the group that these connections make; they are in order already. */
struct nt_group nt_group_of(struct nt_connection *const *connections, size_t count);
