/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds the processes that hold a socket, only when there is something to report, by one look at
 * the descriptors of all processes (task_file iterator). We keep the result for twenty times the
 * time that the look cost. A look may take seconds where somebody has millions of descriptors: so
 * we look in pieces, between which others have their turn (nt_owners_go_on()).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "bpf/nagletrace.h"
#include "capture/asked.h"
#include "capture/behind.h"
#include "base/hash.h"
#include "attach/iterator.h"
#include "capture/owner_list.h"
#include "capture/processes.h"

struct nt_tracer;

#define NT_KNOWN_OWNERS 1024

/* An owner as the last look at it found it: its name outlives it. */
struct nt_known_owner {
	UT_hash_handle hh; /* what a look reads comes first, in few lines of the cache */
	__u64 sk;
	__u64 until_ns; /* what is remembered need not be renewed before that time */
	struct nt_tuple tuple;
	struct nt_process process;
	__u64 share;
};

struct nt_owners {
	const struct nt_tracer *tracer;
	const struct nt_targets *targets;
	struct bpf_link *iterator; /* NULL: this kernel cannot list owners; we find nobody */
	struct nt_owner_list list; /* as the last look found them */
	bool looks_behind;         /* a look fills behind too */
	struct nt_behind behind;
	__u64 scanned_ns; /* when that look began; CLOCK_MONOTONIC, as all times here */
	__u64 valid_until_ns;
	__u64 rest_until_ns; /* no look for a single stall before that time */
	__u64 taken_until_ns;
	/* the most sockets in a look that the processes asked for have, and no hook follows */
	unsigned int untraced[NT_UNTRACED_KINDS];
	bool as_it_is;      /* use the last look, however old it is */
	bool interruptible; /* SIGINT and SIGTERM end nt_owners_scan() */
	bool interrupted;   /* one of them has come, and is not pending any more */

	/* the look under way */
	struct nt_iterator reader;
	struct nt_owner_list next;
	struct nt_asked asked;
	unsigned int next_untraced[NT_UNTRACED_KINDS];
	__u64 began_ns, cost_ns;

	struct nt_recent_processes recent;
	struct nt_known_owner *known; /* a hash; in order, least recently used first */
	struct nt_shares known_shares;
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
};

int nt_owners_open(struct nt_owners *owners, const struct nt_tracer *tracer,
		   const struct nt_targets *targets);
void nt_owners_close(struct nt_owners *owners);

/*
 * Looks anew, even if the last look is still valid. Returns 0 or -errno: -EINTR if interruptible is
 * set and SIGINT or SIGTERM is pending, or has come; it leaves the signal pending.
 */
int nt_owners_scan(struct nt_owners *owners);

/* Can we look, with the privileges that are left? Reads only one piece. Returns 0 or -errno. */
int nt_owners_try(struct nt_owners *owners);

/*
 * Goes on with the look under way until until_ns, or a moment longer; begins one if there is none.
 * True: there is more to do. A look that fails ends, and leaves the result of the one before.
 */
bool nt_owners_go_on(struct nt_owners *owners, __u64 until_ns);

/* Ends a look that is under way: it may already have passed by the socket that we look for. */
void nt_owners_drop_look(struct nt_owners *owners);

/*
 * Could a look show more of the processes that hold this socket, or held it at since_ns? Without a
 * socket: is the last look too old? The answer is also yes while a look is under way, and while the
 * looks rest.
 */
bool nt_owners_must_look(const struct nt_owners *owners, const struct nt_end *end, __u64 since_ns);

/* Could a look show the other end of this connection, which was there at since_ns? */
bool nt_owners_must_look_for_peer(const struct nt_owners *owners, const struct nt_tuple *tuple,
				  __u64 since_ns);

/*
 * Finds the processes that hold this socket, which lived at since_ns (CLOCK_MONOTONIC): returns the
 * first, and how many there are in a row, at most NT_OWNERS_OF_SOCKET; NULL if none does. Looks
 * anew if need be, unless as_it_is. The result is valid until the next call.
 */
const struct nt_owner *nt_owners_find(struct nt_owners *owners, const struct nt_end *end,
				      __u64 since_ns, size_t *count);

/* Gives back the memory of the last look if it is much, and too old to be used. */
void nt_owners_shrink(struct nt_owners *owners);

/*
 * The first remembers the process that held a socket; the second returns it, even when it is gone;
 * NULL: not known.
 */
void nt_owners_remember(struct nt_owners *owners, const struct nt_end *end,
			const struct nt_process *process);
const struct nt_process *nt_owners_recall(const struct nt_owners *owners, const struct nt_end *end);

/*
 * Finds the other end of this connection, and a process that holds it, if it is a socket of this
 * host that was there at since_ns; else NULL. Looks anew as nt_owners_find() does. The result is
 * valid until the next look.
 */
const struct nt_owner *nt_owners_find_peer(struct nt_owners *owners, const struct nt_tuple *tuple,
					   __u64 since_ns);
