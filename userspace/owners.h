/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who holds a socket: looked up only when there is something to report, by one pass over the
 * descriptors of all processes (task_file iterator), which is kept for as long as twenty times what
 * it cost.
 */
#ifndef NT_OWNERS_H
#define NT_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include "../bpf/nagletrace.h"
#include "processes.h"
#include "tracer.h"

#define NT_KNOWN_OWNERS 256

/* An owner as it was found last: its name outlives it. */
struct nt_known_owner {
	__u64 sk; /* 0: free */
	struct nt_tuple tuple;
	struct nt_process process;
};

struct nt_owners {
	struct bpf_link *iterator; /* NULL: this kernel cannot; nobody is found */
	struct nt_owner *list;     /* by socket, then process */
	size_t count, room;
	__u64 scanned_ns; /* CLOCK_MONOTONIC, as the next */
	__u64 valid_until_ns;
	struct nt_known_owner known[NT_KNOWN_OWNERS]; /* by a hash of the socket's address */
};

int nt_owners_open(struct nt_owners *owners, const struct nt_tracer *tracer);
void nt_owners_close(struct nt_owners *owners);

/* Looks anew, whatever is kept. 0 or -errno. */
int nt_owners_scan(struct nt_owners *owners);

/*
 * The processes that hold this socket, which lived at since_ns (CLOCK_MONOTONIC): returns the first
 * and how many there are in a row, NULL if none does. Valid until the next call.
 */
const struct nt_owner *nt_owners_find(struct nt_owners *owners, const struct nt_end *end,
				      __u64 since_ns, size_t *count);

/* Remembers who held a socket, and tells it when the process is gone; NULL: not known. */
void nt_owners_remember(struct nt_owners *owners, const struct nt_end *end,
			const struct nt_process *process);
const struct nt_process *nt_owners_recall(const struct nt_owners *owners, const struct nt_end *end);

/* Is the other end of this connection a socket of this host? */
bool nt_owners_has_peer(struct nt_owners *owners, const struct nt_tuple *tuple);

#endif /* NT_OWNERS_H */
