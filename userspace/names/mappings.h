/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mappings of a process that a call stack may go through, and the files behind them. A traced
 * process chooses their number, their names and their files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* One line of /proc/PID/maps, of code. */
struct nt_mapping {
	uint64_t start, end, offset; /* end: the first address that is not in it */
	uint64_t inode;              /* 0: no file */
	dev_t device;
	uint64_t bias; /* address in memory - address in the file's headers */
	bool reported; /* libdw has taken fd over */
	int fd;        /* its file, open for reading; -1 if it has none, or we cannot read it */
	char *path;    /* as the process sees it; "" for anonymous memory */
};

/* The most files that are open at once; a stack is at most 64 frames deep. */
#define NT_MAPPINGS_MOST 128

struct nt_mappings {
	struct nt_mapping list[NT_MAPPINGS_MOST];
	size_t count;
	size_t lines; /* lines in maps, whether we keep them or not */
	bool full;    /* there was no room for some */
};

/*
 * Takes the lines of maps (in the format of /proc/PID/maps) that map code into which one of
 * addresses[n] points; these must be sorted. The end of a mapping counts too, since a return
 * address may lie behind the last instruction. Opens nothing. Returns 0 or -ENOMEM; in either case
 * the caller calls nt_mappings_free().
 */
int nt_mappings_read(FILE *maps, const uint64_t *addresses, size_t n, struct nt_mappings *mappings);

/*
 * Does the same for a process, and opens the files for reading. It opens
 * only regular files, and each is the one that is mapped, even if it was deleted or is in another
 * mount namespace. No open() affects the file, and none waits for anybody. Returns 0, -ESRCH if the
 * process is gone, or another -errno.
 */
int nt_mappings_open(pid_t pid, const uint64_t *addresses, size_t n, struct nt_mappings *mappings);

void nt_mappings_free(struct nt_mappings *mappings);
