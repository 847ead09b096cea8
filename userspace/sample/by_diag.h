/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looks at the sockets of our own network namespace through sock_diag(7), which takes no privilege,
 * and finds their processes in /proc, as far as /proc shows them to this user.
 */
#pragma once

#include <stdint.h>
#include "sample/diag_message.h"

struct nt_inode_owner {
	uint64_t inode;
	uint32_t tgid;
};

struct nt_by_diag {
	int fd;
	uint32_t request;
	uint64_t tick_ns;
	uint32_t netns;
	struct nt_inode_owner *owners; /* of all sockets, sorted by inode */
	size_t n_owners, room;
};

/* Returns 0 or -errno. */
int nt_by_diag_open(struct nt_by_diag *by);
void nt_by_diag_close(struct nt_by_diag *by);

/* Calls take for each socket that holds back less than a segment. Returns 0 or -errno. */
int nt_by_diag_look(struct nt_by_diag *by, nt_sampled_take *take, void *context);

/* The first looks for the processes anew, the second returns the first of a socket's owners, and
 * how many there are in a row; NULL: none that we may see. */
int nt_by_diag_scan(struct nt_by_diag *by);
const struct nt_inode_owner *nt_by_diag_owners(const struct nt_by_diag *by, uint64_t inode,
					       size_t *count);
