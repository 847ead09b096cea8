/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

#define NT_SECOND_NS 1000000000ULL

/* Reads CLOCK_MONOTONIC, which the kernel side uses for all its times. */
static inline uint64_t nt_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NT_SECOND_NS + t.tv_nsec;
}

/* Returns the CPU time of this thread, without the time in which it waited for a CPU. */
static inline uint64_t nt_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * NT_SECOND_NS + t.tv_nsec;
}
