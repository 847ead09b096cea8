/* SPDX-License-Identifier: GPL-2.0 */
/* Walks over the processes that /proc lists, and says whose numbers those are. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Returns 0 to go on, anything else to end the walk. */
typedef int nt_process_call(void *context, pid_t pid);

/*
 * Calls for each process, until a call ends the walk. Returns what the last call returned, 0 if
 * there was none, or -errno if nothing can be listed.
 */
int nt_each_process(nt_process_call *call, void *context);

/* Do we number processes as the kernel does? Not so in a pid namespace of a container. */
bool nt_process_ids_are_the_hosts(void);
