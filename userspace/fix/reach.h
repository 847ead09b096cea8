/* SPDX-License-Identifier: GPL-2.0 */
/* Takes a descriptor of our own for another process's socket: checks the permission, and finds the
 * socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "base/error.h"
#include "capture/owners.h"
#include "fix/socket.h"

/*
 * Checks whether we may take the sockets that the processes asked for have now, so that `fix` fails
 * at the start and not after the first look.
 */
bool nt_fix_permitted(const struct nt_owners *owners, const struct nt_targets *targets,
		      struct nt_error *error);

/* Returns a thread's pidfd, or -errno; before 6.9, which has none, the pidfd of its process. */
int nt_fix_pidfd(pid_t tgid, pid_t tid);

/* Says whether this descriptor of ours is the entry's socket. */
bool nt_fix_is_socket(int fd, const struct nt_fix_socket *s);

/* Returns a descriptor of our own for the entry's socket at its last place, to be closed at once;
 * or -errno. */
int nt_fix_reach_where_it_was(const struct nt_fix_socket *s);

/*
 * Does the same wherever the socket is now, by preference in a process asked for (targets NULL: no
 * preference). Scans owners again only if they are older than since_ns. Returns -EBADF or -ESRCH if
 * it found the socket nowhere, or another error that it met at one of the places.
 */
int nt_fix_reach(struct nt_fix_socket *s, struct nt_owners *owners,
		 const struct nt_targets *targets, uint64_t since_ns);

/* Says whether this -errno means that the socket is not there; any other failure leaves that
 * open. */
bool nt_fix_means_absent(int err);

/* Calls getsockopt(); returns 0 or -errno. */
int nt_fix_get_option(int fd, int level, int option, void *value, socklen_t size);
