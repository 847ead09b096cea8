// SPDX-License-Identifier: GPL-2.0
#include "series.h"

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
	struct nt_series_key key;

	memset(&key, 0, sizeof(key));
	if (stall->self.tgid) {
		memcpy(key.comm, stall->self.comm, strnlen(stall->self.comm, sizeof(key.comm)));
		if (set->by_cgroup)
			memcpy(key.cgroup, stall->self.cgroup,
			       strnlen(stall->self.cgroup, sizeof(key.cgroup)));
	}
	key.cause = stall->record.cause;
	key.side = stall->side;
	key.evidence = stall->record.evidence;
	return key;
}

static struct nt_series *other(struct nt_series_set *set, const struct nt_series_key *key)
{
	struct nt_series *series =
		&set->others[key->cause % NT_CAUSES][key->side == NT_SIDE_RECEIVER]
			    [key->evidence % NT_EVIDENCES];

	strcpy(series->key.comm, OTHER);
	series->key.cause = key->cause;
	series->key.side = key->side;
	series->key.evidence = key->evidence;
	set->folded++;
	return series;
}

/* A process may have that name itself: its stalls are among theirs, so that a name is one series.
 */
static bool is_called_other(const struct nt_series_key *key)
{
	return !strcmp(key->comm, OTHER);
}

/* Is there room for one more, or can the least recently stalled one make room? */
static bool make_room(struct nt_series_set *set, uint64_t now_ns)
{
	if (nt_series_count(set) < set->most)
		return true;
	if (now_ns < set->list->last_ns + NT_SERIES_IDLE_NS)
		return false;
	drop(set, set->list);
	set->evicted++;
	return true;
}

/* The series with this key, last in the order from now on; or the one of others. */
static struct nt_series *find_or_add(struct nt_series_set *set, const struct nt_series_key *key,
				     uint64_t now_ns)
{
	struct nt_series *series;

	if (is_called_other(key))
		return other(set, key);
	HASH_FIND(hh, set->list, key, sizeof(*key), series);
	if (series && !series->hh.next)
		return series;
	if (series) {
		HASH_DEL(set->list, series);
	} else {
		if (!make_room(set, now_ns))
			return other(set, key);
		series = calloc(1, sizeof(*series));
		if (!series)
			return other(set, key);
		series->key = *key;
	}
	HASH_ADD(hh, set->list, key, sizeof(*key), series);
	if (series->hh.tbl)
		return series;
	free(series);
	return other(set, key);
}

void nt_series_add(struct nt_series_set *set, const struct nt_stall *stall, uint64_t now_ns)
{
	struct nt_series_key key = key_of(set, stall);
	struct nt_series *series = find_or_add(set, &key, now_ns);
	size_t i = 0;

	series->last_ns = now_ns;
	series->stalls++;
	series->duration_ns += stall->duration_ns;
	series->excess_ns += stall->excess_ns;
	while (i < NT_BUCKETS && stall->duration_ns > nt_bucket_ns[i])
		i++;
	if (i < NT_BUCKETS)
		series->buckets[i]++;
}
