/* SPDX-License-Identifier: GPL-2.0 */
/* Privileges that are no longer needed once everything is attached. */
#ifndef NT_PRIVILEGES_H
#define NT_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/capability.h>

/* What has to go on, and the capabilities that may take: the first of them that suffices stays. */
struct nt_must_work {
	bool (*works)(void *context);
	cap_value_t takes[2];
	size_t n_takes;
};

/* Is it in the permitted set? */
bool nt_privileges_has(cap_value_t cap);

/*
 * Gives up every capability for good, in all sets, and the way to get any back by executing a
 * program; but those of keep, and what must works not without, as far as the process has them (at
 * most 16 in all). Writes what stays into kept, as "cap_bpf,cap_sys_ptrace", "none" where nothing
 * does. 0 or -errno.
 */
int nt_privileges_drop(const cap_value_t *keep, size_t n_keep, const struct nt_must_work *must,
		       size_t n_must, void *context, char *kept, size_t size);

#endif /* NT_PRIVILEGES_H */
