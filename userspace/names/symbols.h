/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Unwinds and names the call stacks of a process with libdw, from the files that it has mapped.
 * Only the worker (worker.h) calls this, since a traced process can put anything into those files.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "bpf/nagletrace.h"
#include "names/mappings.h"

struct nt_frame {
	uint64_t ip;
	char *module;    /* path as the process sees it; NULL for code that no file holds (JIT) */
	uint64_t offset; /* with module: the address in the file as objdump shows it; if the file
			  * cannot be read, the offset in it */
	char *symbol;    /* NULL: the module has no name for it */
};

/*
 * Opens the files that a stack may go through. ips[n] is the stack by frame pointers; dump is for
 * unwinding by DWARF (NULL or sp 0: do not unwind). Only this step needs privileges. Returns as
 * nt_mappings_open() does.
 */
int nt_symbols_open(pid_t pid, const uint64_t *ips, size_t n, const struct nt_stack_dump *dump,
		    struct nt_mappings *mappings);

/*
 * Names that stack, innermost frame first, from the files that are open; opens nothing. It uses the
 * longer stack of the two, by frame pointers and by DWARF. Returns how many of frames[room] it
 * filled; the caller calls nt_frames_free(). A frame that it cannot name has only its ip. Takes the
 * descriptors over.
 */
size_t nt_symbols_name(pid_t pid, const uint64_t *ips, size_t n, const struct nt_stack_dump *dump,
		       struct nt_mappings *mappings, struct nt_frame *frames, size_t room);

void nt_frames_free(struct nt_frame *frames, size_t n);
