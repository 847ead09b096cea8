/* SPDX-License-Identifier: GPL-2.0 */
/* Compiles the programs of bpf/ for the host, over shim/, with what every runner of them needs: a
 * start without memory of an earlier run, random numbers, and a check of what is left. */
#pragma once

#include <stdbool.h>
#include <unistd.h>

#include "../unit/unit.h"

#define NT_CONFIG_H /* bpf/config.h makes it constant, for the verifier */
#include "nagletrace.h"
static struct nt_config nt_config;
static bool loads_directly, casts; /* as the compiler and user space know the kernel */
#define NT_DIRECT loads_directly
#define NT_CAST   casts
/* so few that sockets meet at one */
#define ACK_PLACES 4
#include "nagletrace.bpf.c"

#define US     1000ULL
#define SECOND 1000000000ULL

/* Runs a program with these arguments, as a raw tracepoint or fentry passes them. */
#define RUN_PROGRAM(program, ...)                               \
	({                                                      \
		unsigned long long __context[] = {__VA_ARGS__}; \
		program(__context);                             \
	})

static u64 apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/* Turns a seed into a start of random_next(); neighbouring seeds give unlike starts. */
static u64 random_begin(u64 seed)
{
	return (seed * 0x9e3779b97f4a7c15ULL) ^ 0x5851f42d4c957f2dULL;
}

/* xorshift64*, Vigna 2016 */
static u64 random_next(u64 *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

/* Forgets all of an earlier run. */
static void programs_begin(const struct nt_config *config, void *task,
			   void (*on_record)(const void *record))
{
	for (struct host_map *map = host_maps; map; map = map->next) {
		while (map->entries)
			host_drop(map, map->entries);
		map->refused = map->refuses = 0;
	}
	memset(often, 0, sizeof(often));
	memset(buckets, 0, sizeof(buckets));
	memset(&host, 0, sizeof(host));
	host.task = task;
	host.on_record = on_record;
	host_ring.full = false;
	host_ring.refused = 0;
	nt_config = *config;
	late_acks_wanted = false;
	late_acks_until_ns = 0;
	delack_timer_function = write_timer_function = 0;
}

/* Checks that no program has kept a part of the scratch. */
static void scratch_is_free(void)
{
	for (u32 i = 0; i < SCRATCH_LEVELS; i++)
		assert_false(scratch_here()->busy[i]);
}

/*
 * Checks that nothing is kept once all sockets are gone. For each socket whose end was skipped, a
 * hash may keep its hold, and its bucket too.
 */
static void programs_keep_nothing(u64 ends_skipped)
{
	u64 left = HASH_COUNT(host_sized(&hold_hash)->entries), holds = 0;

	for (u32 i = 0; i < BUCKETS; i++)
		holds += buckets[i].holds;
	if (left > ends_skipped || holds > ends_skipped)
		fail_msg("%llu entries and %llu holds are left; %llu ends of sockets were skipped",
			 (unsigned long long)left, (unsigned long long)holds, (unsigned long long)ends_skipped);
	scratch_is_free();
}
