/* SPDX-License-Identifier: GPL-2.0 */
/* Call stacks of held writes, each named once, when it is first reported. */
#ifndef NT_STACKS_H
#define NT_STACKS_H

#include <stddef.h>
#include <sys/types.h>
#include "symbols.h"
#include "tracer.h"

struct nt_stacks;

/* NULL: out of memory. */
struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer);
void nt_stacks_free(struct nt_stacks *stacks);

/*
 * The frames of a held write's stack, innermost first: their number, 0 where there is none. *frames
 * stays valid until nt_stacks_free() or the 512th other stack.
 */
size_t nt_stacks_get(struct nt_stacks *stacks, const struct nt_record *record,
		     const struct nt_frame **frames);

#endif /* NT_STACKS_H */
