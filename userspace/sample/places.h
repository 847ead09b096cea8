/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The network namespaces in which processes live. A BPF iterator over sockets shows those of the
 * namespace in which it is made, so we enter each for a moment. We keep none alive.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct nt_place {
	uint64_t netns; /* inode */
	pid_t pid;      /* lives in it; 0: we do */
};

struct nt_places {
	int own; /* descriptor of our own namespace */
	uint64_t own_netns;
	struct nt_place *list; /* our own first */
	size_t count, room;
	bool hidden; /* there are processes whose namespace we may not see */
};

/* Returns 0 or -errno. */
int nt_places_open(struct nt_places *places);
void nt_places_close(struct nt_places *places);

/* Lists the namespaces anew. netns: only this one; 0: all. Returns 0 or -errno. */
int nt_places_scan(struct nt_places *places, uint64_t netns);

/*
 * The first enters a listed namespace, the second comes back to our own. Return 0; -ESRCH: the
 * process that lived there does no more; or another -errno.
 */
int nt_places_enter(const struct nt_places *places, const struct nt_place *place);
int nt_places_leave(const struct nt_places *places, const struct nt_place *place);
