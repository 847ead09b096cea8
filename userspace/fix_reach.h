/* SPDX-License-Identifier: GPL-2.0 */
/* A descriptor of our own of another process's socket: whether it may be taken, and where it is. */
#ifndef NT_FIX_REACH_H
#define NT_FIX_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "fix_sockets.h"

/*
 * May sockets of the processes asked for be taken, as far as they have some now? Found out at the
 * start, not after the first look. Returns NT_EXIT_OK, or the exit code with one line in err.
 */
enum nt_exit nt_fix_permitted(const struct nt_owners *owners, const struct nt_targets *targets,
			      char *err, size_t err_size);

/* A thread's pidfd; before 6.9, where there is none, its process's. Or -errno. */
int nt_fix_pidfd(pid_t tgid, pid_t tid);

/* Is this descriptor of ours that entry's socket? */
bool nt_fix_is_socket(int fd, const struct nt_fix_socket *s);

/* A descriptor of our own, to be closed at once, of the entry's socket at its last place; or
 * -errno. */
int nt_fix_reach_where_it_was(const struct nt_fix_socket *s);

/*
 * Likewise, wherever it is: in a process asked for where there is one (targets NULL: no matter).
 * What is kept of owners does if it is not older than since_ns. -EBADF or -ESRCH: it was found
 * nowhere; or what else went wrong at one of the places.
 */
int nt_fix_reach(struct nt_fix_socket *s, struct nt_owners *owners,
		 const struct nt_targets *targets, uint64_t since_ns);

/* Does this -errno say that it is not there? Any other failure says nothing of that. */
bool nt_fix_means_absent(int err);

/* getsockopt(); 0 or -errno. */
int nt_fix_get_option(int fd, int level, int option, void *value, socklen_t size);

#endif /* NT_FIX_REACH_H */
