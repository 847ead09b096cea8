/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Was this hold a stall, on what evidence, and what happened? Pure functions of the facts known
 * when a hold ends. They compile for the host too: tests/unit/test_stall.c.
 */
#ifndef NT_STALL_H
#define NT_STALL_H

#include "verdict.h"

/*
 * What only one end can show: no prompt ACK is later than the connection's own round trip by this
 * much. The kernel's delayed-ACK timer is 40 ms (TCP_DELACK_MIN) less at most one jiffy of rounding
 * at HZ=100.
 */
#define NT_INFER_NS 30000000ULL

/* The first few segments of a connection: handshakes of TLS, prefaces of HTTP/2. */
#define NT_HANDSHAKE_SEGMENTS 2

struct nt_stall_facts {
	__u64 duration_ns; /* of the hold */
	__u64 withheld_ns; /* how much of what put_off_ns says was during the hold */
	__u64 put_off_ns;  /* how long the receiver owed the releasing ACK, where that was seen */
	__u64 silent_ns;   /* before the releasing ACK: since the one before it, or the begin */
	__u64 min_rtt_ns;  /* 0: not known */
	__u64 delack_limit_ns; /* smallest delayed-ACK timeout that the local settings make likely
				*/
	__u32 in_flight_bytes; /* when the hold began */
	__u32 silent_bytes;    /* what was in flight while no ACK came, before the releasing one */
	__u32 mss;
	__u32 segments_before; /* data segments sent before the hold began */
	__u8 reason;           /* enum nt_hold_reason */
	__u8 release;          /* enum nt_release */
	__u8 late_end;   /* enum nt_ack_end of the receiver's pending ACK; INVALID: none was seen */
	bool pure_ack;   /* the releasing segment carried no data */
	bool recovering; /* from loss, between begin and end */
	bool nodelay;    /* TCP_NODELAY is set at the end */
	bool locked;     /* the receiver's timer found the socket in use */
};

static inline __u64 nt_excess_ns(const struct nt_stall_facts *f)
{
	return f->duration_ns > f->min_rtt_ns ? f->duration_ns - f->min_rtt_ns : 0;
}

static inline __u64 nt_late_limit_ns(const struct nt_stall_facts *f)
{
	return f->delack_limit_ns < NT_INFER_NS ? f->delack_limit_ns : NT_INFER_NS;
}

static inline enum nt_evidence nt_nagle_evidence(const struct nt_stall_facts *f)
{
	if (f->release != NT_RELEASE_ACK || !f->pure_ack)
		return NT_EVIDENCE_INVALID;
	/* written as the ACK was on its way: what is waited for then is the way */
	if (f->late_end != NT_ACK_INVALID && 2 * f->withheld_ns < nt_excess_ns(f))
		return NT_EVIDENCE_INVALID;
	if (f->late_end == NT_ACK_TIMER)
		return NT_EVIDENCE_SEEN;
	/* put off, then sent for another reason: only a stall if it came too late all the same; by
	 * the receiver's clock, since the hold also waits for queues on the way */
	if (f->late_end != NT_ACK_INVALID)
		return f->put_off_ns >= nt_late_limit_ns(f) ? NT_EVIDENCE_SEEN
							    : NT_EVIDENCE_INVALID;
	/* without a round trip measured yet nobody knows what is late; while ACKs of what went
	 * before keep coming, a queue on the way explains the wait; and of two full segments no
	 * receiver puts the ACK off */
	if (!f->min_rtt_ns || f->recovering || nt_excess_ns(f) < nt_late_limit_ns(f) ||
	    f->silent_ns < nt_late_limit_ns(f) || f->silent_bytes >= 2 * f->mss)
		return NT_EVIDENCE_INVALID;
	return NT_EVIDENCE_INFERRED;
}

/* Is there a stall that a hold for this reason can be? */
static inline bool nt_may_stall(__u8 reason)
{
	return reason == NT_HOLD_NAGLE || reason == NT_HOLD_CORK || reason == NT_HOLD_MSG_MORE;
}

/* Sets *evidence; NT_CAUSE_INVALID: the hold was no stall. */
static inline enum nt_cause nt_stall_cause(const struct nt_stall_facts *f,
					   enum nt_evidence *evidence)
{
	*evidence = NT_EVIDENCE_INVALID;
	switch (f->reason) {
	case NT_HOLD_NAGLE:
		*evidence = nt_nagle_evidence(f);
		return *evidence ? NT_CAUSE_NAGLE_DELAYED_ACK : NT_CAUSE_INVALID;
	case NT_HOLD_CORK:
	case NT_HOLD_MSG_MORE:
		if (f->release != NT_RELEASE_TIMER)
			return NT_CAUSE_INVALID;
		*evidence = NT_EVIDENCE_SEEN;
		return NT_CAUSE_CORK_CEILING;
	default:
		return NT_CAUSE_INVALID;
	}
}

/* What happened, also for holds that are no stall; INVALID where no pattern fits. */
static inline enum nt_pattern nt_hold_pattern(const struct nt_stall_facts *f, enum nt_cause cause)
{
	switch (cause) {
	case NT_CAUSE_CORK_CEILING:
		return NT_PATTERN_CORK_CEILING;
	case NT_CAUSE_NAGLE_DELAYED_ACK:
		if (f->locked)
			return NT_PATTERN_LOCKED_SOCKET;
		if (f->nodelay || f->segments_before <= NT_HANDSHAKE_SEGMENTS)
			return NT_PATTERN_HANDSHAKE_FLIGHT;
		if (f->in_flight_bytes >= f->mss)
			return NT_PATTERN_REPLY_TAIL;
		return NT_PATTERN_WRITE_WRITE_READ;
	default:
		if (f->reason == NT_HOLD_AUTOCORK)
			return NT_PATTERN_AUTOCORK;
		if (f->reason == NT_HOLD_NAGLE && f->release == NT_RELEASE_ACK)
			return NT_PATTERN_ACK_CLOCKED;
		return NT_PATTERN_INVALID;
	}
}

#endif /* NT_STALL_H */
