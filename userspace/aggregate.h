/* SPDX-License-Identifier: GPL-2.0 */
/* Stalls summed by process and connection, in bounded memory. */
#ifndef NT_AGGREGATE_H
#define NT_AGGREGATE_H

#include <stddef.h>
#include <stdint.h>
#include "stall.h"

#define NT_MAX_CONNECTIONS 1024 /* more are folded into one */
#define NT_SAMPLES         256  /* durations kept for percentiles: all of them up to that many */

struct nt_connection {
	enum nt_side side;
	unsigned int cause;
	struct nt_stall last; /* the latest stall, as the example */
	uint64_t count;
	uint64_t lost_ns; /* sum of excess */
	uint64_t max_ns;
	uint64_t seen; /* of count, with evidence `seen` */
	uint64_t patterns[NT_PATTERNS];
	uint32_t samples_us[NT_SAMPLES];
};

struct nt_aggregate {
	struct nt_connection **connections;
	size_t count;
	uint64_t stalls;
	uint64_t lost_ns;
	uint64_t folded; /* stalls of connections beyond NT_MAX_CONNECTIONS, in stalls and lost_ns
			    too */
	uint64_t random; /* state of the sampling */
};

void nt_aggregate_init(struct nt_aggregate *aggregate);
void nt_aggregate_clear(struct nt_aggregate *aggregate);

/* Adds one stall. 0 or -ENOMEM (it is then folded). */
int nt_aggregate_add(struct nt_aggregate *aggregate, const struct nt_stall *stall);

/* Orders the connections: processes by lost time, and each one's connections by lost time. */
void nt_aggregate_sort(struct nt_aggregate *aggregate);

/* The duration (ns) below which part percent of the connection's stalls lie, by nearest rank. */
uint64_t nt_connection_percentile(const struct nt_connection *connection, unsigned int percent);

/* The pattern that most of its stalls have. */
unsigned int nt_connection_pattern(const struct nt_connection *connection);

#endif /* NT_AGGREGATE_H */
