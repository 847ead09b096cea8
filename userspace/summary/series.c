// SPDX-License-Identifier: GPL-2.0
#include "summary/series.h"

#include <stdlib.h>
#include <string.h>

#define MS    1000000ULL
#define OTHER "other"

const uint64_t nt_bucket_ns[NT_BUCKETS] = {
	1 * MS,  5 * MS,   10 * MS,  20 * MS,  30 * MS,  35 * MS,  40 * MS,   45 * MS,   50 * MS,
	75 * MS, 100 * MS, 150 * MS, 200 * MS, 250 * MS, 500 * MS, 1000 * MS, 2000 * MS,
};

void nt_series_init(struct nt_series_set *set, size_t most, bool by_cgroup)
{
	memset(set, 0, sizeof(*set));
	set->most = most;
	set->by_cgroup = by_cgroup;
}

static void drop(struct nt_series_set *set, struct nt_series *series)
{
	HASH_DEL(set->list, series);
	set->shares.count[series->share]--;
	free(series);
}

void nt_series_clear(struct nt_series_set *set)
{
	while (set->list)
		drop(set, set->list);
	nt_series_init(set, set->most, set->by_cgroup);
}

size_t nt_series_count(const struct nt_series_set *set)
{
	return HASH_COUNT(set->list);
}

static struct nt_series_key key_of(const struct nt_series_set *set, const struct nt_stall *stall)
{
	const struct nt_process *process = nt_stall_process(stall, stall->side);
	struct nt_series_key key;

	memset(&key, 0, sizeof(key));
	if (process->tgid) {
		memcpy(key.comm, process->comm, strnlen(process->comm, sizeof(key.comm)));
		if (set->by_cgroup) {
			memcpy(key.cgroup, process->cgroup,
			       strnlen(process->cgroup, sizeof(key.cgroup)));
			key.container = process->container;
		}
	}
	key.cause = stall->record.cause;
	key.reason = nt_record_reason(&stall->record);
	key.side = stall->side;
	key.evidence = stall->record.evidence;
	return key;
}

/* Returns what waited (enum nt_hold_reason), which distinguishes causes and reasons. */
static unsigned int waited(unsigned int cause, unsigned int reason)
{
	switch (cause) {
	case NT_CAUSE_DELAYED_ACK:
		return reason % NT_HOLD_REASONS;
	case NT_CAUSE_CORK_CEILING:
		return NT_HOLD_CORK;
	default:
		return NT_HOLD_NAGLE;
	}
}

static struct nt_series *other(struct nt_series_set *set, const struct nt_series_key *key)
{
	struct nt_series *series =
		&set->others[waited(key->cause, key->reason)][key->side == NT_SIDE_RECEIVER]
			    [key->evidence % NT_EVIDENCES];

	strcpy(series->key.comm, OTHER);
	series->key.cause = key->cause;
	series->key.reason = key->reason;
	series->key.side = key->side;
	series->key.evidence = key->evidence;
	return series;
}

/* There is no room for a series of this key. */
static struct nt_series *fold(struct nt_series_set *set, const struct nt_series_key *key)
{
	set->folded++;
	return other(set, key);
}

/*
 * A process may itself be called `other`: its stalls then join that series, so that each name is
 * one series.
 */
static bool is_called_other(const struct nt_series_key *key)
{
	return !strcmp(key->comm, OTHER);
}

/* Chooses the series that makes room for one of this share; NULL: none does. */
static struct nt_series *choose_to_drop(const struct nt_series_set *set, unsigned int share,
					uint64_t now_ns)
{
	unsigned int largest = nt_shares_largest(&set->shares);
	struct nt_series *series = set->list;

	/* the least recently stalled one is first */
	if (now_ns >= series->last_ns + NT_SERIES_IDLE_NS)
		return series;
	if (set->shares.count[largest] <= set->shares.count[share] + 1)
		return NULL;
	while (series->share != largest)
		series = series->hh.next;
	return series;
}

static bool make_room(struct nt_series_set *set, unsigned int share, uint64_t now_ns)
{
	struct nt_series *series;

	if (nt_series_count(set) < set->most)
		return true;
	series = choose_to_drop(set, share, now_ns);
	if (!series)
		return false;
	drop(set, series);
	set->evicted++;
	return true;
}

static struct nt_series *add(struct nt_series_set *set, const struct nt_series_key *key,
			     unsigned int share, uint64_t now_ns)
{
	struct nt_series *series = NULL;

	if (make_room(set, share, now_ns))
		series = calloc(1, sizeof(*series));
	if (!series)
		return NULL;
	series->key = *key;
	series->share = share;
	set->shares.count[share]++;
	return series;
}

/* Returns the series with this key, which moves to the end of the order, but once in
 * NT_RENEW_NS only; or the one called `other`. */
static struct nt_series *find_or_add(struct nt_series_set *set, const struct nt_series_key *key,
				     unsigned int share, uint64_t now_ns)
{
	struct nt_series *series;

	if (is_called_other(key))
		return other(set, key);
	HASH_FIND(hh, set->list, key, sizeof(*key), series);
	if (series && (!series->hh.next || now_ns < series->moved_ns + NT_RENEW_NS))
		return series;
	if (series)
		HASH_DEL(set->list, series);
	else
		series = add(set, key, share, now_ns);
	if (!series)
		return fold(set, key);
	series->moved_ns = now_ns;
	HASH_ADD(hh, set->list, key, sizeof(*key), series);
	if (series->hh.tbl)
		return series;
	set->shares.count[series->share]--;
	free(series);
	return fold(set, key);
}

static struct nt_series_stall describe(const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;

	return (struct nt_series_stall){
		.time_ns = r->time_ns,
		.duration_ns = stall->duration_ns,
		.tuple = nt_stall_end(stall, stall->side)->tuple,
		.tgid = nt_stall_process(stall, stall->side)->tgid,
		.bytes = r->sender.present ? r->hold.bytes : r->ack.bytes,
	};
}

void nt_series_add(struct nt_series_set *set, const struct nt_stall *stall, uint64_t now_ns)
{
	struct nt_series_key key = key_of(set, stall);
	unsigned int share = nt_share_place(nt_record_share(&stall->record));
	struct nt_series *series = find_or_add(set, &key, share, now_ns);
	size_t i = 0;

	series->last_ns = now_ns;
	series->last = describe(stall);
	series->stalls++;
	series->duration_ns += stall->duration_ns;
	series->excess_ns += stall->excess_ns;
	while (i < NT_BUCKETS && stall->duration_ns > nt_bucket_ns[i])
		i++;
	if (i < NT_BUCKETS)
		series->buckets[i]++;
}
