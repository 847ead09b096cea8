/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters and histograms of stalls by label set, in bounded memory, for Prometheus.
 *
 * We keep a label set as long as there is room. When there is none, a label set that has not
 * stalled for NT_SERIES_IDLE_NS makes room, the least recently stalled first. If there is no such
 * label set, one of the share that has most makes room, but only for a share that has less
 * (shares.h). Otherwise the new label set counts as `other`. So the number of label sets is bounded
 * over time too, not only at any one time, and no user's names push out another user's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"
#include "base/shares.h"
#include "capture/stall.h"

#define NT_BUCKETS        17
#define NT_SERIES_IDLE_NS (15 * 60 * 1000000000ULL)

/* Upper bounds, which belong to their bucket; only +Inf has the longer stalls. */
extern const uint64_t nt_bucket_ns[NT_BUCKETS];

struct nt_series_key {
	char comm[NT_USER_LEN];        /* padded with NUL; "" if the process is not known */
	char cgroup[NT_CGROUP_LEN];    /* padded with NUL; "" unless by_cgroup is set */
	struct nt_container container; /* likewise */
	__u32 cause;                   /* enum nt_cause */
	__u32 reason;                  /* nt_record_reason() */
	__u32 side;                    /* enum nt_side */
	__u32 evidence;                /* enum nt_evidence */
};

/* Enough to find the connection and the write. */
struct nt_series_stall {
	uint64_t time_ns; /* when it ended; CLOCK_MONOTONIC */
	uint64_t duration_ns;
	struct nt_tuple tuple; /* as our end sees it */
	pid_t tgid;            /* as in struct nt_process */
	uint32_t bytes;        /* held, or acknowledged late where no hold was seen */
};

struct nt_series {
	struct nt_series_key key;
	struct nt_series_stall last;
	UT_hash_handle hh;
	unsigned int share; /* place of the first stall's share in the table */
	uint64_t moved_ns;  /* when it came to the end of the order */
	uint64_t last_ns;   /* when it stalled last */
	uint64_t stalls;
	uint64_t duration_ns;
	uint64_t excess_ns;
	uint64_t buckets[NT_BUCKETS]; /* each counts its own bucket alone, not those below */
};

struct nt_series_set {
	struct nt_series *list; /* a hash; in order, least recently stalled first, to a second */
	struct nt_shares shares;
	size_t most;
	bool by_cgroup;
	/* by what waited (enum nt_hold_reason), side, evidence */
	struct nt_series others[NT_HOLD_REASONS][2][NT_EVIDENCES];
	uint64_t folded;  /* stalls that the series in others have counted */
	uint64_t evicted; /* label sets that have made room */
};

void nt_series_init(struct nt_series_set *set, size_t most, bool by_cgroup);
void nt_series_clear(struct nt_series_set *set);

/* Counts a stall at now_ns (CLOCK_MONOTONIC). */
void nt_series_add(struct nt_series_set *set, const struct nt_stall *stall, uint64_t now_ns);

size_t nt_series_count(const struct nt_series_set *set);
