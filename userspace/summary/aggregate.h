/* SPDX-License-Identifier: GPL-2.0 */
/* Sums stalls by process and connection, in bounded memory that users share fairly (shares.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"
#include "base/shares.h"
#include "capture/stall.h"

#define NT_MAX_CONNECTIONS 1024 /* the default */
#define NT_SAMPLES         256  /* durations kept for percentiles: all of them up to that many */

struct nt_connection_key {
	struct nt_tuple tuple;
	pid_t tgid;
	__u32 side;
	__u32 cause;
	__u32 reason; /* nt_record_reason() */
};

struct nt_connection {
	struct nt_connection_key key;
	UT_hash_handle hh;
	uint64_t moved_ns;        /* CLOCK_MONOTONIC: when it came to the end of the order */
	unsigned int share;       /* place of the first stall's share in the table */
	uint64_t first_ns;        /* CLOCK_MONOTONIC: the end of the first stall */
	uint64_t first_excess_ns; /* its excess */
	uint64_t count;
	uint64_t excess_ns; /* sum of excess */
	uint64_t max_ns;
	uint64_t seen; /* of count, with evidence `seen` */
	uint64_t patterns[NT_PATTERNS];
	uint64_t process_excess_ns; /* sum of its whole process, while we sort */
	struct nt_stall last;       /* the latest stall, as the example */
	uint32_t samples_us[NT_SAMPLES];
};

struct nt_aggregate {
	struct nt_connection *connections; /* a hash; least recently stalled first, to a second */
	struct nt_shares shares;
	size_t most; /* connections kept; the next one pushes out the first of the largest share */
	uint64_t stalls;
	uint64_t excess_ns;
	uint64_t folded; /* stalls of connections pushed out; stalls and excess_ns include them */
	uint64_t random; /* state of the sampling */
};

void nt_aggregate_init(struct nt_aggregate *aggregate, size_t most);
void nt_aggregate_clear(struct nt_aggregate *aggregate);

/* Adds one stall. Returns 0, or -ENOMEM: it then counts as folded. */
int nt_aggregate_add(struct nt_aggregate *aggregate, const struct nt_stall *stall);

/* Adds all stalls of another aggregate, whose time came later; those without room are folded. */
void nt_aggregate_merge(struct nt_aggregate *aggregate, const struct nt_aggregate *later);

size_t nt_aggregate_count(const struct nt_aggregate *aggregate);

/*
 * Returns the connections in order: processes by lost time, and the connections of each by lost
 * time. The array has nt_aggregate_count() elements, and the caller frees it; NULL if there are
 * none, or no memory. It is valid until the next stall is added.
 */
struct nt_connection **nt_aggregate_sorted(const struct nt_aggregate *aggregate);

/* Does the same with the connections by lost time alone, whose processes they are. */
struct nt_connection **nt_aggregate_costly(const struct nt_aggregate *aggregate);

/* Orders pointers to connections by lost time, the most first, for qsort(). */
int nt_most_excess_first(const void *a, const void *b);

/*
 * Returns the duration (ns) at or below which percent of these connections' stalls lie, by nearest
 * rank; 0 without memory.
 */
uint64_t nt_percentile(struct nt_connection *const *connections, size_t count,
		       unsigned int percent);

/* Does the same for the stalls of all connections that we keep. */
uint64_t nt_aggregate_percentile(const struct nt_aggregate *aggregate, unsigned int percent);

/* Returns the pattern that most of its stalls have. */
unsigned int nt_connection_pattern(const struct nt_connection *connection);
