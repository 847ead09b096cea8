/* SPDX-License-Identifier: GPL-2.0 */
/* Which TCP sockets are open, also such that no process has at a descriptor just now. */
#ifndef NT_OPEN_SOCKETS_H
#define NT_OPEN_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "owners.h"

/* Zeroed before the first use. */
struct nt_open_sockets {
	uint64_t *inodes; /* sorted */
	size_t count, room;
};

/*
 * Reads those of a network namespace, given by its inode number, from /proc/PID/net of a process
 * that is in it; owners, as scanned last, may name one. 0; -ESRCH: no process is in it; or another
 * -errno: not known. A socket that is there all the time can be missing in one reading, when others
 * of its bucket go meanwhile.
 */
int nt_open_sockets_read(struct nt_open_sockets *open, uint32_t netns,
			 const struct nt_owners *owners);
bool nt_open_sockets_has(const struct nt_open_sockets *open, uint64_t inode);
void nt_open_sockets_close(struct nt_open_sockets *open);

#endif /* NT_OPEN_SOCKETS_H */
