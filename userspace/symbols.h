/* SPDX-License-Identifier: GPL-2.0 */
/* A process's call stacks: unwound and named by libdw, through the process's own mount namespace.
 */
#ifndef NT_SYMBOLS_H
#define NT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "../bpf/nagletrace.h"

struct nt_frame {
	uint64_t ip;
	char *module;    /* path as the process sees it; NULL for code that no file holds (JIT) */
	uint64_t offset; /* with module: the address in the file as objdump shows it; if the file
			  * cannot be read, the offset in it */
	char *symbol;    /* NULL: the module has no name for it */
};

/*
 * Names the call stack of a process (thread group id in our pid namespace), innermost frame first.
 * ips[n] is the stack by frame pointers; with a dump (not NULL, sp not 0) it is unwound by DWARF,
 * which finds the callers that keep no frame pointer, and the longer of the two is taken. Returns
 * how many of frames[room] are filled, to be released with nt_frames_free(). What cannot be named
 * (the process is gone) has its ip only. Nothing stays open or in memory; the network is never
 * asked.
 */
size_t nt_symbols_resolve(pid_t pid, const uint64_t *ips, size_t n,
			  const struct nt_stack_dump *dump, struct nt_frame *frames, size_t room);
void nt_frames_free(struct nt_frame *frames, size_t n);

#endif /* NT_SYMBOLS_H */
