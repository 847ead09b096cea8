/* SPDX-License-Identifier: GPL-2.0 */
/* A record of the kernel side, with the processes of both its ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "capture/audit.h"
#include "capture/origin.h"
#include "capture/owners.h"
#include "capture/processes.h"

enum nt_side {
	NT_SIDE_SENDER,
	NT_SIDE_RECEIVER,
};

/* A stall, a hold that is none, or a late ACK, by the record's kind. */
struct nt_stall {
	struct nt_record record;
	enum nt_side side;                  /* the end that the report is about */
	struct nt_process sender, receiver; /* tgid 0: not known, or on another host */
	uint64_t duration_ns; /* of the hold; of the pending ACK if we did not see the hold */
	uint64_t excess_ns;   /* the time that a prompt ACK would have saved */
	uint32_t min_rtt_us;  /* 0: not known */
	bool is_stall;        /* false: a hold that is no stall */
	bool contradicted;    /* no stall, since the other end showed nothing of it */
	uint64_t ack_id;      /* of the ACK that released it; 0: not known */
	uint64_t number;      /* counts what this run reports, from 1 on: a gap shows a loss */
	const struct nt_origin *origin; /* NULL: not known */
};

static inline bool nt_is_late_ack(const struct nt_stall *stall)
{
	return stall->record.kind == NT_RECORD_LATE_ACK;
}

/* Returns the end of this side, which may not be present. */
static inline const struct nt_end *nt_stall_end(const struct nt_stall *stall, enum nt_side side)
{
	return side == NT_SIDE_SENDER ? &stall->record.sender : &stall->record.receiver;
}

/* Returns the process that has this end; its tgid is 0 if it is not known. */
static inline const struct nt_process *nt_stall_process(const struct nt_stall *stall,
							enum nt_side side)
{
	return side == NT_SIDE_SENDER ? &stall->sender : &stall->receiver;
}

/*
 * Returns what waited for the late ACK (enum nt_hold_reason), of the cause delayed_ack; 0 of the
 * others, which say it themselves.
 */
static inline unsigned int nt_record_reason(const struct nt_record *record)
{
	return record->cause == NT_CAUSE_DELAYED_ACK ? record->hold.reason : 0;
}

/* Returns how long an ACK was pending. */
static inline uint64_t nt_pending_ack_ns(const struct nt_ack_part *ack)
{
	return ack->end_ns > ack->begin_ns ? ack->end_ns - ack->begin_ns : 0;
}

/* Returns when the wait of a record began. */
static inline uint64_t nt_record_began_ns(const struct nt_record *record)
{
	return record->sender.present ? record->hold.begin_ns : record->ack.begin_ns;
}

/* Returns the share whose room a record takes, here as in the ring buffer: bpf/share.h. */
static inline uint64_t nt_record_share(const struct nt_record *record)
{
	return record->sender.present
		       ? nt_share_of_both(record->sender.share, record->receiver.share)
		       : record->receiver.share;
}

/* Did the user ask for a connection with these addresses, by namespace, family and ports? */
bool nt_tuple_wanted(const struct nt_settings *settings, const struct nt_tuple *tuple);

/* Could a look at all descriptors show more of a record's owners than we know? */
bool nt_stall_must_look(const struct nt_record *record, const struct nt_targets *targets,
			const struct nt_owners *owners);

/*
 * Decides whether the user asked for a record and from which end we see it, and finds the owners.
 * Returns true and fills *stall, or false if there is nothing to report.
 */
bool nt_stall_from_record(struct nt_stall *stall, const struct nt_record *record,
			  const struct nt_settings *settings, const struct nt_targets *targets,
			  struct nt_owners *owners, struct nt_audit *audit);

/*
 * Decides the same for a record that nobody asked for: does a relay stall for which a process asked
 * for may wait (behind.h)? The side is the relay's.
 */
bool nt_stall_behind(struct nt_stall *stall, const struct nt_record *record,
		     const struct nt_settings *settings, const struct nt_targets *targets,
		     struct nt_owners *owners);
