/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of other processes on which `fix` sets an option for a while. It holds a descriptor of
 * one only for the duration of its calls: a held descriptor keeps the connection open, so that the
 * program's close() would send no FIN.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "capture/owners.h"
#include "fix/socket.h"

#define NT_FIX_MOST      4096  /* the most sockets that one run sets at a time */
#define NT_FIX_MOST_MORE 65536 /* the most others that it counts */

/* A socket that found no room. */
struct nt_fix_more {
	struct nt_socket_key key;
	UT_hash_handle hh;
};

struct nt_fix_sockets {
	int option;                 /* TCP_NODELAY or TCP_QUICKACK */
	struct nt_fix_socket *list; /* NT_FIX_MOST entries, which stay where they are */
	size_t count;
	struct nt_fix_socket *by_key;
	struct nt_fix_more *more;
	uint64_t no_room; /* sockets that found none, each once */
	uint64_t rounds;  /* of nt_fix_set_again() */
	bool over;        /* the sockets are being set back: nothing is set or added any more */
};

/* Returns 0 or -ENOMEM; the caller closes it in either case. */
int nt_fix_open(struct nt_fix_sockets *sockets, int option);
void nt_fix_close(struct nt_fix_sockets *sockets);

/* Returns "TCP_NODELAY" or "TCP_QUICKACK". */
const char *nt_fix_option_name(const struct nt_fix_sockets *sockets);

/* Explains the state of an entry from its err. */
const char *nt_fix_why(const struct nt_fix_socket *s);

/* Returns the entry of this end, NULL if there is none. */
struct nt_fix_socket *nt_fix_find(const struct nt_fix_sockets *sockets, const struct nt_end *end);

/*
 * Adds an entry for a socket that existed at since_ns (CLOCK_MONOTONIC): looks for a descriptor, by
 * preference in a process asked for, and reads the option. Changes nothing on the socket. Returns
 * NULL if there is no room, which it counts, or if the sockets are being set back.
 */
struct nt_fix_socket *nt_fix_add(struct nt_fix_sockets *sockets, const struct nt_end *end,
				 uint64_t since_ns, struct nt_owners *owners,
				 const struct nt_targets *targets);

/* Does the same, but adds no socket that is absent or not connected yet: a later look may
 * find it. */
void nt_fix_add_reached(struct nt_fix_sockets *sockets, const struct nt_end *end,
			struct nt_owners *owners, const struct nt_targets *targets);

/* Sets the option on a planned entry; its state shows the result. */
void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners);

/*
 * Looks again for sockets that were not reached, to plan them, and for set sockets that have moved,
 * so that nt_fix_set_again() reaches them. It scans all descriptors once, or not at all if there
 * are no such sockets. If there is no room, it marks closed ones, to make some.
 */
void nt_fix_look_again(struct nt_fix_sockets *sockets, struct nt_owners *owners,
		       const struct nt_targets *targets);

/* Sets TCP_QUICKACK again, since the kernel leaves it: on all set sockets that stalled, and on the
 * others by turns. */
void nt_fix_set_again(struct nt_fix_sockets *sockets);

/* Counts the entries in this state. */
size_t nt_fix_count(const struct nt_fix_sockets *sockets, enum nt_fix_state state);

/* Sets all back, wherever they are by now; afterwards none can be set. A closed socket needs
 * nothing; an open one that is at no descriptor is looked for again for a while. */
void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners);

/* Sets back those that are at their last place; it makes only system calls, as signal
 * handlers may. */
void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets);
