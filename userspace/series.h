/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters and histograms of stalls by label set, in bounded memory: what Prometheus is told.
 *
 * A label set is kept as long as there is room. When there is none, one that has not stalled for
 * NT_SERIES_IDLE_NS makes room, the least recently stalled first; while there is no such one, what
 * is new is counted as `other`. So their number stays bounded over time too, not only at once.
 */
#ifndef NT_SERIES_H
#define NT_SERIES_H

#include <stddef.h>
#include <stdint.h>
#include "hash.h"
#include "stall.h"

#define NT_BUCKETS        17
#define NT_SERIES_IDLE_NS (15 * 60 * 1000000000ULL)

/* Upper bounds, which belong to their bucket; longer stalls are in none but +Inf. */
extern const uint64_t nt_bucket_ns[NT_BUCKETS];

struct nt_series_key {
	char comm[NT_COMM_LEN];     /* padded with NUL; "" where the process is not known */
	char cgroup[NT_CGROUP_LEN]; /* likewise; "" unless asked for */
	__u32 cause;                /* enum nt_cause */
	__u32 side;                 /* enum nt_side */
	__u32 evidence;             /* enum nt_evidence */
};

struct nt_series {
	struct nt_series_key key;
	UT_hash_handle hh;
	uint64_t last_ns; /* when it stalled last */
	uint64_t stalls;
	uint64_t duration_ns;
	uint64_t excess_ns;
	uint64_t buckets[NT_BUCKETS]; /* of this bucket alone, not cumulative */
};

struct nt_series_set {
	struct nt_series *list; /* a hash; in order, least recently stalled first */
	size_t most;
	bool by_cgroup;
	struct nt_series others[NT_CAUSES][2][NT_EVIDENCES]; /* by cause, side, evidence */
	uint64_t folded;                                     /* stalls counted there */
	uint64_t evicted;                                    /* label sets that made room */
};

void nt_series_init(struct nt_series_set *set, size_t most, bool by_cgroup);
void nt_series_clear(struct nt_series_set *set);

/* Counts a stall at now_ns (CLOCK_MONOTONIC). */
void nt_series_add(struct nt_series_set *set, const struct nt_stall *stall, uint64_t now_ns);

size_t nt_series_count(const struct nt_series_set *set);

#endif /* NT_SERIES_H */
