/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Call stacks of held writes. We unwind and name each once, when its first stall comes: reports
 * find the names by a handle, and need neither the process nor the kernel's copy any more. Until
 * its names come, and if they do not come, a stack has its addresses.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include "names/names.h"
#include "bpf/nagletrace.h"

struct nt_tracer;
struct nt_stacks;

/*
 * most: how many distinct stacks' names we keep; the next one pushes out the oldest. NULL: no
 * memory.
 */
struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer, struct nt_names *names,
				size_t most);
void nt_stacks_free(struct nt_stacks *stacks);

/*
 * Asks for the names of the record's stack, if that was not done before. Returns a handle, or
 * NT_NO_STACK.
 */
__s32 nt_stacks_name(struct nt_stacks *stacks, const struct nt_record *record);

/* Takes the names that have come; calls nt_names_turn(). */
void nt_stacks_turn(struct nt_stacks *stacks);

/* Are the names of that stack still to come? */
bool nt_stacks_waits(const struct nt_stacks *stacks, __s32 handle);

/*
 * Finds the frames of a handle, innermost first. Returns their number, 0 if there are none or we no
 * longer have them. *frames stays valid until the next nt_stacks_name() or nt_stacks_turn().
 */
size_t nt_stacks_get(const struct nt_stacks *stacks, __s32 handle, const struct nt_frame **frames);

/* Counts stalls whose stack the kernel had taken, but no longer had when we asked for it. */
uint64_t nt_stacks_dropped(const struct nt_stacks *stacks);

/*
 * Removes all stacks from the kernel's map if full is set, or if half of the room is used. The
 * kernel keeps each stack that it has met, stall or no stall, and takes no more when the map is
 * full.
 */
void nt_stacks_recycle(struct nt_stacks *stacks, bool full);
