/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Was this hold a stall, on what evidence, and what happened? Pure functions answer, from the facts
 * known once a hold is over. They compile for the host too: tests/unit/test_judge.c.
 */
#pragma once

#include "verdict.h"

/*
 * Where only one end is here: no ACK comes later by this much than a prompt one would have. The
 * kernel's delayed-ACK timer runs for 40 ms (TCP_DELACK_MIN) less at most one jiffy of rounding at
 * HZ=100.
 */
#define NT_INFER_NS 30000000ULL

/* An ACK that is later than a prompt one by this waited for something. */
#define NT_PROMPT_NS 1000000ULL

/*
 * Do the bytes go among the first of their connection? The number of data segments that this end
 * has sent and received before decides it. TLS handshakes and the preface of HTTP/2 are among the
 * first; in them the ends take turns, while a protocol that writes its messages in parts sends more
 * than it receives. A TLS client sends its hello, which a server may have it repeat, its Finished
 * and the preface; a server its hello, its certificates and session tickets.
 */
static inline bool nt_in_handshake(__u32 sent, __u32 received)
{
	return sent <= 2 || (sent <= 4 && received >= sent);
}

struct nt_stall_facts {
	__u64 duration_ns;        /* of the hold */
	__u64 pending_in_hold_ns; /* how much of pending_ns was during the hold */
	__u64 pending_ns; /* how long the releasing ACK was pending, where a program saw that */
	__u64 silent_ns;  /* before the releasing ACK: since the one before it, or the start */
	__u64 delack_limit_ns; /* the shortest delay of ACKs that the local settings make likely */
	__u32 in_flight_bytes; /* when the hold began */
	__u32 silent_bytes;    /* in flight while no ACK came, before the releasing one */
	__u32 mss;
	__u32 writes;       /* that wrote the held bytes; 0: not known */
	__u32 way_us;       /* nt_way_us(), of a hold that an ACK ended; 0: not known */
	__u8 reason;        /* enum nt_hold_reason */
	__u8 release;       /* enum nt_release */
	__u8 late_release;  /* enum nt_ack_release of the pending ACK; INVALID: unseen */
	bool pure_ack;      /* the releasing segment carried no data */
	bool ack_with_data; /* it carried some; neither: nobody is sure */
	bool recovering;    /* from loss, during the hold */
	bool nodelay;       /* TCP_NODELAY is set when the hold is over */
	bool handshake;     /* it began in the handshake: nt_in_handshake() */
	__u8 locked;        /* enum nt_lock, of the receiver */
	bool rest;          /* the held bytes are what is left of a write, or follow what is
			     * left of bytes of which the peer has acknowledged a part */
	bool blurred;       /* a jiffy or two decide whether the ACK was pending for long enough:
			     * then what the sender felt decides */
	bool unanswered;    /* the peer has sent no data since the stall before */
};

/*
 * Returns, in us, how long after the start of a hold the ACK would have come if the receiver had
 * not delayed it: what was left of a round trip, since the bytes in flight had been on their way
 * for age_us; if that is negative, they leave so much later. It is half a round trip at least:
 * bytes that were written while the ACK was on its way back waited for that way. min_rtt_us: the
 * smallest round trip; 0: not known, and neither is the result.
 */
static inline __u32 nt_way_us(__u32 min_rtt_us, __s32 age_us)
{
	__s32 half = min_rtt_us / 2;

	if (!min_rtt_us)
		return 0;
	return min_rtt_us - (age_us < half ? age_us : half);
}

static inline __u64 nt_excess_ns(const struct nt_stall_facts *f)
{
	__u64 way_ns = f->way_us * 1000ULL;

	return f->duration_ns > way_ns ? f->duration_ns - way_ns : 0;
}

static inline __u64 nt_late_limit_ns(const struct nt_stall_facts *f)
{
	return f->delack_limit_ns < NT_INFER_NS ? f->delack_limit_ns : NT_INFER_NS;
}

/*
 * Returns how late an ACK has to be for one end alone to call it late. A limit of a few
 * milliseconds counts on a short way only: on others ACKs come and go by as much.
 */
static inline __u64 nt_infer_limit_ns(const struct nt_stall_facts *f)
{
	return 4 * f->way_us * 1000ULL <= nt_late_limit_ns(f) ? nt_late_limit_ns(f) : NT_INFER_NS;
}

/*
 * Is so little in flight that the receiver may delay its ACK? It acknowledges two full segments at
 * once: __tcp_ack_snd_check().
 */
static inline bool nt_lone(__u32 in_flight_bytes, __u32 mss)
{
	return in_flight_bytes < 2 * mss;
}

/* Did the hold wait for a late ACK? */
static inline enum nt_evidence nt_late_evidence(const struct nt_stall_facts *f)
{
	if (f->release != NT_RELEASE_ACK || !f->pure_ack)
		return NT_EVIDENCE_INVALID;
	/* written while the ACK was on its way, the bytes waited for that way, or for the lock of
	 * the receiver's socket */
	if (f->late_release != NT_ACK_INVALID && 2 * f->pending_in_hold_ns < nt_excess_ns(f) &&
	    !(f->locked == NT_LOCK_UNSEEN && f->pending_in_hold_ns >= nt_late_limit_ns(f)))
		return NT_EVIDENCE_INVALID;
	if (f->late_release == NT_ACK_TIMER)
		return NT_EVIDENCE_SEEN;
	/* pending, then sent for another reason: that is a stall only if the ACK came too late all
	 * the same; by the receiver's clock, since the hold also waits for queues on the way */
	if (f->late_release != NT_ACK_INVALID && !f->blurred)
		return f->pending_ns >= nt_late_limit_ns(f) ? NT_EVIDENCE_SEEN
							    : NT_EVIDENCE_INVALID;
	/* nobody knows what is late before a round trip was measured; a queue on the way explains
	 * the wait while ACKs of earlier bytes keep coming; and no receiver delays the ACK of two
	 * full segments */
	if (!f->way_us || f->recovering || nt_excess_ns(f) < nt_infer_limit_ns(f) ||
	    f->silent_ns < nt_infer_limit_ns(f) || !nt_lone(f->silent_bytes, f->mss))
		return NT_EVIDENCE_INVALID;
	return f->blurred ? NT_EVIDENCE_SEEN : NT_EVIDENCE_INFERRED;
}

/* Can a hold for this reason become a stall? One for the congestion window can, if it is lone. */
static inline bool nt_may_stall(__u8 reason, bool lone)
{
	switch (reason) {
	case NT_HOLD_NAGLE:
	case NT_HOLD_CORK:
	case NT_HOLD_MSG_MORE:
	case NT_HOLD_SNDBUF:
	case NT_HOLD_LINGER:
		return true;
	default:
		return reason == NT_HOLD_CWND && lone;
	}
}

/*
 * Does a hold that was no stall cost time which the program did not take itself? The program ends a
 * cork, and fills, flushes or closes a segment that Nagle holds. The windows, pacing and the device
 * release bytes in whatever context comes next, so that the release says nothing there.
 */
static inline bool nt_costs_time(__u8 reason, __u8 release)
{
	switch (reason) {
	case NT_HOLD_NAGLE:
		return release == NT_RELEASE_ACK || release == NT_RELEASE_TIMER ||
		       release == NT_RELEASE_LOSS_PROBE;
	case NT_HOLD_AUTOCORK:
	case NT_HOLD_TSO_DEFER:
	case NT_HOLD_CWND:
	case NT_HOLD_RWND:
	case NT_HOLD_PACING:
	case NT_HOLD_TSQ:
		return true;
	default:
		return false;
	}
}

/* Returns the cause and sets *evidence; NT_CAUSE_INVALID: the hold was no stall. */
static inline enum nt_cause nt_stall_cause(const struct nt_stall_facts *f,
					   enum nt_evidence *evidence)
{
	*evidence = NT_EVIDENCE_INVALID;
	switch (f->reason) {
	case NT_HOLD_NAGLE:
		*evidence = nt_late_evidence(f);
		return *evidence ? NT_CAUSE_NAGLE_DELAYED_ACK : NT_CAUSE_INVALID;
	case NT_HOLD_CORK:
	case NT_HOLD_MSG_MORE:
		if (f->release == NT_RELEASE_TIMER) {
			*evidence = NT_EVIDENCE_SEEN;
			return NT_CAUSE_CORK_CEILING;
		}
		/* the next ACK sends what MSG_MORE holds, if one is to come: a probe timer that
		 * went unseen would else pass for it */
		if (f->reason == NT_HOLD_CORK || !f->silent_bytes)
			return NT_CAUSE_INVALID;
		break;
	case NT_HOLD_CWND:
		/* loss makes the congestion window small, and explains the wait */
		if (f->recovering || !nt_lone(f->in_flight_bytes, f->mss))
			return NT_CAUSE_INVALID;
		break;
	case NT_HOLD_SNDBUF:
	case NT_HOLD_LINGER:
		break;
	default:
		return NT_CAUSE_INVALID;
	}
	*evidence = nt_late_evidence(f);
	return *evidence ? NT_CAUSE_DELAYED_ACK : NT_CAUSE_INVALID;
}

/*
 * Returns the pattern of a small segment that an ACK released and that was no stall. An ACK that
 * came with data, later than the way explains, waited for the peer's next message. A pure one that
 * came later than a queue on the way explains has no pattern.
 */
static inline enum nt_pattern nt_released_pattern(const struct nt_stall_facts *f)
{
	if (f->ack_with_data && nt_excess_ns(f) >= NT_PROMPT_NS)
		return f->recovering ? NT_PATTERN_INVALID : NT_PATTERN_PIGGYBACKED_ACK;
	return nt_excess_ns(f) < nt_infer_limit_ns(f) ? NT_PATTERN_ACK_CLOCKED : NT_PATTERN_INVALID;
}

/* Returns what the program did, by its writes, so that a small segment waited for a late ACK. */
static inline enum nt_pattern nt_program_pattern(const struct nt_stall_facts *f)
{
	if (f->rest || f->in_flight_bytes >= f->mss)
		return NT_PATTERN_REPLY_TAIL;
	if (f->unanswered)
		return NT_PATTERN_ONE_WAY;
	return f->writes > 1 ? NT_PATTERN_SEVERAL_WRITES : NT_PATTERN_WRITE_WRITE_READ;
}

/* Returns the pattern, also of a hold that is no stall; INVALID: no pattern fits. */
static inline enum nt_pattern nt_hold_pattern(const struct nt_stall_facts *f, enum nt_cause cause)
{
	if (cause == NT_CAUSE_DELAYED_ACK && f->reason == NT_HOLD_SNDBUF)
		return NT_PATTERN_FULL_BUFFER;
	if (cause == NT_CAUSE_DELAYED_ACK && f->reason == NT_HOLD_CWND)
		return NT_PATTERN_SMALL_CWND;
	if (cause == NT_CAUSE_DELAYED_ACK && f->reason == NT_HOLD_LINGER)
		return NT_PATTERN_LINGERING_CLOSE;
	switch (cause) {
	case NT_CAUSE_CORK_CEILING:
		return NT_PATTERN_CORK_CEILING;
	case NT_CAUSE_NAGLE_DELAYED_ACK:
	case NT_CAUSE_DELAYED_ACK:
		if (f->locked)
			return NT_PATTERN_LOCKED_SOCKET;
		if ((f->nodelay && cause == NT_CAUSE_NAGLE_DELAYED_ACK) || f->handshake)
			return NT_PATTERN_HANDSHAKE_FLIGHT;
		return nt_program_pattern(f);
	default:
		if (f->reason == NT_HOLD_AUTOCORK)
			return NT_PATTERN_AUTOCORK;
		if (f->reason == NT_HOLD_NAGLE && f->release == NT_RELEASE_ACK)
			return nt_released_pattern(f);
		return NT_PATTERN_INVALID;
	}
}
