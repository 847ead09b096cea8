/* SPDX-License-Identifier: GPL-2.0 */
/* Reads the output of a BPF iterator program in pieces of whole entries. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "bpf/nagletrace.h"

struct bpf_link;

struct nt_iterator {
	bool under_way;
	int fd;
	size_t entry;
	size_t held; /* bytes in piece: whole entries, and maybe the start of one */
	unsigned char piece[8192] __attribute__((aligned(8)));
};

/* Starts again; an entry has that size in bytes, at most 4096. Returns 0 or -errno. */
int nt_iterator_begin(struct nt_iterator *iterator, const struct bpf_link *link, size_t entry);

/*
 * Reads the next entries: returns how many, 0 at the end, or -errno. They are valid until the next
 * call. A call takes as long as the program lets the kernel go on (NT_PIECE). If there are no
 * entries, the reading ends.
 */
ssize_t nt_iterator_next(struct nt_iterator *iterator, const void **entries);

/* Ends the reading, if one is under way. */
void nt_iterator_end(struct nt_iterator *iterator);
