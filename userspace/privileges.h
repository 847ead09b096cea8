/* SPDX-License-Identifier: GPL-2.0 */
/* Privileges that are no longer needed once everything is attached. */
#ifndef NT_PRIVILEGES_H
#define NT_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>
#include "options.h"

/*
 * Gives up every capability for good, in all sets, and the way to get any back by executing a
 * program. Keeps CAP_BPF where works(context) fails without it (before 5.19 the kernel asks for it
 * to read a map, if unprivileged BPF is off), and with stacks what naming other processes' frames
 * takes: CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and with a limit of overhead what the kernel's
 * statistics take: CAP_SYS_ADMIN. Writes what is kept into kept, as
 * "cap_bpf,cap_sys_ptrace", "none" where nothing is. 0 or -errno.
 */
int nt_privileges_drop(const struct nt_options *opts, bool (*works)(void *context), void *context,
		       char *kept, size_t size);

#endif /* NT_PRIVILEGES_H */
