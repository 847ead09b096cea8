/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fair shares of the ring buffer of records: no user's stalls push out another's.
 *
 * Three quarters of the buffer are for whoever comes first. It is fuller only while user space does
 * not keep up; then each share may put at most SHARE_RECORDS a second there. A share is a user and
 * cgroup (socket_share()) at one end of a connection, with those at the other end where that is
 * known: so a client that makes a service stall takes no room from the service's other clients.
 */
#pragma once

#include "ring.h"
#include "totals.h"
#include "socket.h"

#define FOR_ALL_BYTES (RECORDS_BYTES / 4 * 3)

/* How many records one share may put into the last quarter: eight shares fill it. */
#define SHARE_RECORDS ((RECORDS_BYTES - FOR_ALL_BYTES) / 8 / RECORD_BYTES)

#define SECOND_NS     1000000000ULL

struct share_use {
	u64 since_ns;
	u64 records; /* since then */
};

/* The shares that used the last quarter; the least recently used give way, and begin anew. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct share_use);
} share_uses SEC(".maps");

/* Has this share used up its records of this second? Counts the one that is about to be made. */
__noinline int share_is_used_up(u64 share)
{
	struct share_use first = {.since_ns = bpf_ktime_get_ns(), .records = 1};
	struct share_use *use = bpf_map_lookup_elem(&share_uses, &share);

	if (!use) {
		bpf_map_update_elem(&share_uses, &share, &first, BPF_NOEXIST);
		return false;
	}
	if (first.since_ns - use->since_ns >= SECOND_NS) {
		use->since_ns = first.since_ns;
		use->records = 0;
	}
	/* an atomic add that returns the sum takes 5.12 */
	__sync_fetch_and_add(&use->records, 1);
	return use->records > SHARE_RECORDS;
}
