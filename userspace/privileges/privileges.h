/* SPDX-License-Identifier: GPL-2.0 */
/* Gives up the privileges that a tracer no longer needs once everything is attached. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/capability.h>

/*
 * Something that must go on working, and the capabilities that may be needed for it: we keep the
 * first that suffices.
 */
struct nt_must_work {
	bool (*works)(void *context);
	cap_value_t takes[2];
	size_t n_takes;
};

/* Does this set of ours, CAP_PERMITTED or CAP_EFFECTIVE, contain this capability? */
bool nt_privileges_has(cap_flag_t set, cap_value_t cap);

/*
 * Gives up every capability for good, in all sets, and every way to get one back by executing a
 * program. The exceptions are the capabilities of keep, and those without which one of must does
 * not work, as far as the process has them (at most 16 in all). Writes the capabilities that stay
 * into kept, as "cap_bpf,cap_sys_ptrace", or "none". Returns 0 or -errno.
 */
int nt_privileges_drop(const cap_value_t *keep, size_t n_keep, const struct nt_must_work *must,
		       size_t n_must, void *context, char *kept, size_t size);
