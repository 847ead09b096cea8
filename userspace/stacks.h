/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Call stacks of held writes, each unwound and named once, when its first stall comes: reports find
 * the names by a handle, and need neither the process nor the kernel's copy any more.
 */
#ifndef NT_STACKS_H
#define NT_STACKS_H

#include <stddef.h>
#include <sys/types.h>
#include "symbols.h"
#include "tracer.h"

struct nt_stacks;

/* most: distinct stacks whose names are kept; the next one pushes the oldest out. NULL: no memory.
 */
struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer, size_t most);
void nt_stacks_free(struct nt_stacks *stacks);

/* Names the stack that the record bears, if that was not done before. A handle, or NT_NO_STACK. */
__s32 nt_stacks_name(struct nt_stacks *stacks, const struct nt_record *record);

/*
 * The frames behind a handle, innermost first: their number, 0 where there is none or no longer.
 * *frames stays valid until the next nt_stacks_name().
 */
size_t nt_stacks_get(const struct nt_stacks *stacks, __s32 handle, const struct nt_frame **frames);

/*
 * The kernel keeps each stack that it has met, stall or no stall, and takes no more when it is
 * full: throws all of them out if full is set, or if half of the room is used.
 */
void nt_stacks_recycle(struct nt_stacks *stacks, bool full);

#endif /* NT_STACKS_H */
