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

#define NT_FIX_MOST 4096 /* sockets that one run sets */

enum nt_fix_state {
	NT_FIX_PLANNED,
	NT_FIX_SET,
	NT_FIX_RESTORED,
	NT_FIX_HAD_IT,  /* TCP_NODELAY was on before: nothing was changed */
	NT_FIX_CHANGED, /* the program itself has switched it off meanwhile: left so */
	NT_FIX_CLOSED,  /* before it was set, or while it was */
	NT_FIX_FAILED,  /* could not be set: err */
	NT_FIX_STUCK,   /* could not be set back: err */
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
	int fd;
	uint64_t cookie; /* SO_COOKIE: no other socket's */
	int former;      /* the option as it was */
	enum nt_fix_state state;
	int err;   /* -errno */
	bool away; /* not at this descriptor any more */
	bool stalled;
	uint64_t set_ns; /* CLOCK_MONOTONIC; 0: never */
	uint64_t stalls_before, stalls_during;
	struct nt_fix_pair pair; /* that of them which can be compared */
};

struct nt_fix_sockets {
	int option;                 /* TCP_NODELAY or TCP_QUICKACK */
	struct nt_fix_socket *list; /* of NT_FIX_MOST; entries stay where they are */
	size_t count;
	struct nt_fix_socket *by_key;
	uint64_t no_room; /* sockets that found none */
	uint64_t rounds;  /* of nt_fix_set_again() */
};

/* 0 or -ENOMEM. To be closed in either case. */
int nt_fix_open(struct nt_fix_sockets *sockets, int option);
void nt_fix_close(struct nt_fix_sockets *sockets);

/* "TCP_NODELAY" */
const char *nt_fix_option_name(const struct nt_fix_sockets *sockets);

/*
 * May sockets of the processes asked for be taken, as far as they have some now? Found out at the
 * start, not after the first look. Returns NT_EXIT_OK, or the exit code with one line in err.
 */
enum nt_exit nt_fix_permitted(const struct nt_owners *owners, const struct nt_targets *targets,
			      char *err, size_t err_size);

/* The entry of this end, NULL if there is none. */
struct nt_fix_socket *nt_fix_find(const struct nt_fix_sockets *sockets, const struct nt_end *end);

/*
 * Makes an entry of a socket that was there at since_ns (CLOCK_MONOTONIC): looks for a descriptor,
 * in a process asked for where there is one, and reads the option. Changes nothing. NULL: no room,
 * which is counted.
 */
struct nt_fix_socket *nt_fix_add(struct nt_fix_sockets *sockets, const struct nt_end *end,
				 uint64_t since_ns, struct nt_owners *owners,
				 const struct nt_targets *targets);

/* Sets the option on a planned one; its state tells. */
void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners);

/* TCP_QUICKACK, which the kernel leaves by itself: on what is set and stalled, and by turns on the
 * rest of what is set.
 */
void nt_fix_set_again(struct nt_fix_sockets *sockets);

/* Sets all back, wherever they are by now. */
void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners);

/* Likewise those that are where they were; only by system calls, as signal handlers may. */
void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets);

#endif /* NT_FIX_SOCKETS_H */
