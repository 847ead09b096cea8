/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of other processes, on which `fix` sets an option for a while. A descriptor of one is
 * ours only for as long as the calls on it take: it keeps the connection open, so that the
 * program's close() would send no FIN.
 */
#ifndef NT_FIX_SOCKETS_H
#define NT_FIX_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fix_verdict.h"
#include "hash.h"
#include "owners.h"

#define NT_FIX_MOST      4096  /* sockets that one run sets at a time */
#define NT_FIX_MOST_MORE 65536 /* others that are counted */

enum nt_fix_state {
	NT_FIX_PLANNED,
	NT_FIX_SET,
	NT_FIX_RESTORED,
	NT_FIX_HAD_IT,  /* TCP_NODELAY was on before: nothing was changed */
	NT_FIX_CHANGED, /* the program itself has switched it off meanwhile: left so */
	NT_FIX_CLOSED,  /* before it was set, or while it was */
	NT_FIX_FAILED,  /* could not be set: err */
	NT_FIX_STUCK, /* could not be set back: err; -EBADF or -ESRCH: it is open, but was not found
		       */
	NT_FIX_STATES,
};

struct nt_fix_key {
	__u64 sk;
	struct nt_tuple tuple; /* memory of sockets is used again */
	__u32 reserved;
};

struct nt_fix_socket {
	struct nt_fix_key key;
	UT_hash_handle hh;
	struct nt_process process; /* who has it, as fd */
	pid_t tid;                 /* its thread that has it */
	int fd;
	uint64_t cookie; /* SO_COOKIE: no other socket's */
	uint64_t inode;  /* likewise, as /proc/net/tcp has it; 0: not known */
	int former;      /* the option as it was */
	enum nt_fix_state state;
	int err;     /* -errno */
	bool away;   /* not at this descriptor any more */
	bool looked; /* among those that are open; and how often it was missing there */
	unsigned int missed;
	bool stalled;
	uint64_t set_ns; /* CLOCK_MONOTONIC; 0: never */
	uint64_t stalls_before, stalls_during;
	struct nt_fix_pair pair; /* that of them which can be compared */
};

/* One that found no room. */
struct nt_fix_more {
	struct nt_fix_key key;
	UT_hash_handle hh;
};

struct nt_fix_sockets {
	int option;                 /* TCP_NODELAY or TCP_QUICKACK */
	struct nt_fix_socket *list; /* of NT_FIX_MOST; entries stay where they are */
	size_t count;
	struct nt_fix_socket *by_key;
	struct nt_fix_more *more;
	uint64_t no_room; /* sockets that found none, each once */
	uint64_t rounds;  /* of nt_fix_set_again() */
	bool over;        /* being set back: nothing is set or added any more */
};

/* 0 or -ENOMEM. To be closed in either case. */
int nt_fix_open(struct nt_fix_sockets *sockets, int option);
void nt_fix_close(struct nt_fix_sockets *sockets);

/* "TCP_NODELAY" */
const char *nt_fix_option_name(const struct nt_fix_sockets *sockets);

/* Why one is in its state, where err tells. */
const char *nt_fix_why(const struct nt_fix_socket *s);

/* The entry of this end, NULL if there is none. */
struct nt_fix_socket *nt_fix_find(const struct nt_fix_sockets *sockets, const struct nt_end *end);

/*
 * Makes an entry of a socket that was there at since_ns (CLOCK_MONOTONIC): looks for a descriptor,
 * in a process asked for where there is one, and reads the option. Changes nothing. NULL: no room,
 * which is counted, or all are being set back.
 */
struct nt_fix_socket *nt_fix_add(struct nt_fix_sockets *sockets, const struct nt_end *end,
				 uint64_t since_ns, struct nt_owners *owners,
				 const struct nt_targets *targets);

/* Likewise, but leaves one out that is not there, or not connected yet: it may be found later. */
void nt_fix_add_reached(struct nt_fix_sockets *sockets, const struct nt_end *end,
			struct nt_owners *owners, const struct nt_targets *targets);

/* Sets the option on a planned one; its state tells. */
void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners);

/*
 * Looks again for those that were not reached, to be planned, and for those that are set and have
 * moved, so that they are set again: by one look at all descriptors, and none if there are none.
 * Where there is no room, notes which are closed, to make some.
 */
void nt_fix_look_again(struct nt_fix_sockets *sockets, struct nt_owners *owners,
		       const struct nt_targets *targets);

/* TCP_QUICKACK, which the kernel leaves by itself: on what is set and stalled, and by turns on the
 * rest of what is set.
 */
void nt_fix_set_again(struct nt_fix_sockets *sockets);

/*
 * Sets all back, wherever they are by now; from then on none is set. One that is closed needs
 * nothing; one that is open, but at no descriptor, is looked for again for a while.
 */
void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners);

/* Likewise those that are where they were; only by system calls, as signal handlers may. */
void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets);

#endif /* NT_FIX_SOCKETS_H */
