/* SPDX-License-Identifier: GPL-2.0 */
/* Lists the open TCP sockets, including those that no process has at a descriptor just now. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "capture/owners.h"

/* The caller zeroes it before the first use. */
struct nt_open_sockets {
	uint64_t *inodes; /* sorted */
	size_t count, room;
};

/*
 * Reads the sockets of a network namespace, given by its inode number, from /proc/PID/net of a
 * process in it; owners, as scanned last, may name one. Returns 0; -ESRCH: no process is in it; or
 * another -errno: unknown. One reading can miss a socket that is open all the time, when others of
 * its bucket go meanwhile.
 */
int nt_open_sockets_read(struct nt_open_sockets *open, uint32_t netns,
			 const struct nt_owners *owners);
bool nt_open_sockets_has(const struct nt_open_sockets *open, uint64_t inode);
void nt_open_sockets_close(struct nt_open_sockets *open);
