/* SPDX-License-Identifier: GPL-2.0 */
/* A record of the kernel side with its owners found, seen from the end that the report is about. */
#ifndef NT_STALL_RECORD_H
#define NT_STALL_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include "owners.h"
#include "processes.h"

enum nt_side {
	NT_SIDE_SENDER,
	NT_SIDE_RECEIVER,
};

struct nt_stall {
	struct nt_record record;
	enum nt_side side;
	struct nt_process self; /* tgid 0: not known */
	struct nt_process peer; /* the other end's, where it is on this host */
	uint32_t tid;           /* who wrote, 0 where not known */
	uint64_t duration_ns;   /* of the hold; of the pending ACK where the hold was not seen */
	uint64_t excess_ns;     /* what a prompt ACK would have saved: the time lost */
	uint32_t min_rtt_us;    /* 0: not known */
	bool is_stall;          /* else a hold that is none */
};

/* The end that the report is about, and the other one, which may not be present. */
static inline const struct nt_end *nt_stall_self(const struct nt_stall *stall)
{
	return stall->side == NT_SIDE_SENDER ? &stall->record.sender : &stall->record.receiver;
}

static inline const struct nt_end *nt_stall_peer(const struct nt_stall *stall)
{
	return stall->side == NT_SIDE_SENDER ? &stall->record.receiver : &stall->record.sender;
}

/* Is a connection with these addresses asked for, by namespace, family and ports? */
bool nt_tuple_wanted(const struct nt_options *opts, const struct nt_tuple *tuple);

/*
 * Decides whether a record is asked for and from which end it is seen, and finds the owners.
 * Returns true and fills *stall, or false if it is not to be reported.
 */
bool nt_stall_from_record(struct nt_stall *stall, const struct nt_record *record,
			  const struct nt_options *opts, const struct nt_targets *targets,
			  struct nt_owners *owners);

#endif /* NT_STALL_RECORD_H */
