/* SPDX-License-Identifier: GPL-2.0 */
/* Stalls summed by process and connection, in bounded memory. */
#ifndef NT_AGGREGATE_H
#define NT_AGGREGATE_H

#include <stddef.h>
#include <stdint.h>
#include "hash.h"
#include "stall.h"

#define NT_MAX_CONNECTIONS 1024 /* unless asked for otherwise */
#define NT_SAMPLES         256  /* durations kept for percentiles: all of them up to that many */

struct nt_connection_key {
	struct nt_tuple tuple;
	pid_t tgid;
	__u32 side;
	__u32 cause;
};

struct nt_connection {
	struct nt_connection_key key;
	UT_hash_handle hh;
	struct nt_stall last;   /* the latest stall, as the example */
	uint64_t first_ns;      /* CLOCK_MONOTONIC: the end of the first stall */
	uint64_t first_lost_ns; /* its excess */
	uint64_t count;
	uint64_t lost_ns; /* sum of excess */
	uint64_t max_ns;
	uint64_t seen; /* of count, with evidence `seen` */
	uint64_t patterns[NT_PATTERNS];
	uint64_t process_lost_ns; /* of all of its process, while being sorted */
	uint32_t samples_us[NT_SAMPLES];
};

struct nt_aggregate {
	struct nt_connection *connections; /* a hash; in order, least recently stalled first */
	size_t most;                       /* connections kept; the next one pushes the first out */
	uint64_t stalls;
	uint64_t lost_ns;
	uint64_t folded; /* stalls of connections pushed out, in stalls and lost_ns too */
	uint64_t random; /* state of the sampling */
};

void nt_aggregate_init(struct nt_aggregate *aggregate, size_t most);
void nt_aggregate_clear(struct nt_aggregate *aggregate);

/* Adds one stall. 0 or -ENOMEM (it is then folded). */
int nt_aggregate_add(struct nt_aggregate *aggregate, const struct nt_stall *stall);

size_t nt_aggregate_count(const struct nt_aggregate *aggregate);

/*
 * The connections in order: processes by lost time, and each one's connections by lost time. An
 * array of nt_aggregate_count(), to be freed; NULL when there are none, or no memory. Valid until
 * the next stall is added.
 */
struct nt_connection **nt_aggregate_sorted(const struct nt_aggregate *aggregate);

/* The duration (ns) below which part percent of the connection's stalls lie, by nearest rank. */
uint64_t nt_connection_percentile(const struct nt_connection *connection, unsigned int percent);

/* Likewise of the stalls of all connections that are kept; 0 without memory. */
uint64_t nt_aggregate_percentile(const struct nt_aggregate *aggregate, unsigned int percent);

/* The pattern that most of its stalls have. */
unsigned int nt_connection_pattern(const struct nt_connection *connection);

#endif /* NT_AGGREGATE_H */
