/* SPDX-License-Identifier: GPL-2.0 */
/* In place of bpf/ring.h: each record leaves as an event, of which gadget.yaml describes the
 * fields. */
#ifndef NT_RING_H
#define NT_RING_H

#include "gadget_config.h"
#include "gadget_ends.h"
#include "gadget_process.h"

#define WORD_LEN 20

typedef char nt_word[WORD_LEN];

#include "words.h"

static const nt_word sides[] = {"sender", "receiver"};

/* The barrier keeps the compiler from hiding the bound. A value without a word leaves none. */
#define SET_WORD(field, table, value)                                             \
	({                                                                        \
		u32 __i = (value);                                                \
		barrier_var(__i);                                                 \
		if (__i < sizeof(table) / sizeof((table)[0]))                     \
			__builtin_memcpy((field), (table)[__i], sizeof((field))); \
	})

struct stall {
	gadget_timestamp timestamp_raw;
	gadget_netns_id netns_id;
	struct gadget_process proc;
	struct gadget_l4endpoint_t src;
	struct gadget_l4endpoint_t dst;
	gadget_duration duration_raw;
	gadget_duration excess_raw;
	gadget_duration pending_ack_raw;
	gadget_duration min_rtt_raw;
	nt_word side;
	nt_word cause;
	nt_word evidence;
	nt_word pattern;
	nt_word reason;
	nt_word release;
	nt_word ack_reason;
	nt_word ack_release;
	u32 bytes;
	u32 in_flight_bytes;
	u32 writes;
	u32 mss;
	bool nodelay;
	bool cork;
	gadget_pid peer_pid;
	char peer_comm[TASK_COMM_LEN];
};

/* ig takes the event, and leaves what follows it. The receiver is here since the stack is small. */
struct told_stall {
	struct stall stall;
	struct nt_record record;
	struct gadget_process receiver;
};

#define RECORDS_BYTES (1 << 20)
#define RECORD_BYTES  (sizeof(struct told_stall) + 8)

GADGET_TRACER_MAP(records, RECORDS_BYTES);
GADGET_TRACER(stalls, records, stall);

static __always_inline u64 ring_used_bytes(void)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);
}

static __always_inline struct nt_record *ring_reserve(void)
{
	struct told_stall *told = bpf_ringbuf_reserve(&records, sizeof(*told), 0);

	return told ? &told->record : NULL;
}

static __always_inline void set_endpoint(struct gadget_l4endpoint_t *end, const u8 *address,
					 u16 port, u16 family)
{
	__builtin_memcpy(end->addr_raw.v6, address, sizeof(end->addr_raw.v6));
	end->port = port;
	end->proto_raw = IPPROTO_TCP;
	end->version = family == AF_INET ? 4 : 6;
}

static __always_inline void set_connection(struct stall *stall, const struct nt_end *end)
{
	const struct nt_tuple *tuple = &end->tuple;

	stall->netns_id = tuple->netns;
	stall->nodelay = end->nodelay;
	stall->cork = end->cork;
	set_endpoint(&stall->src, tuple->local_addr, tuple->local_port, tuple->family);
	set_endpoint(&stall->dst, tuple->remote_addr, tuple->remote_port, tuple->family);
}

/*
 * Sets the process of an end: the one that wrote what is held, or the one that reads. Returns
 * whether it is one that the user asked for.
 */
static __always_inline bool set_process(struct gadget_process *p, const struct nt_end *end,
					bool sender)
{
	const struct gadget_process *known = sender ? bpf_map_lookup_elem(&writers, &end->tgid)
						    : bpf_map_lookup_elem(&readers, &end->sk);

	__builtin_memset(p, 0, sizeof(*p));
	if (known)
		*p = *known;
	if (sender) {
		p->pid = end->tgid;
		p->tid = end->tid;
		__builtin_memcpy(p->comm, end->comm, sizeof(p->comm));
	}
	return end->present && !gadget_should_discard_data(p->mntns_id, p->pid, p->tid, p->comm,
							   p->creds.uid, p->creds.gid);
}

static __always_inline void set_peer(struct stall *stall, const struct gadget_process *p)
{
	stall->peer_pid = p->pid;
	__builtin_memcpy(stall->peer_comm, p->comm, sizeof(stall->peer_comm));
}

/*
 * Sets the end that the user asked for, the sender's first, and the other one's process as its
 * peer. Returns false if nobody asked for either.
 */
static __always_inline bool set_ends(struct told_stall *told)
{
	const struct nt_record *r = &told->record;
	struct stall *stall = &told->stall;
	bool receiver_wanted = set_process(&told->receiver, &r->receiver, false);

	if (set_process(&stall->proc, &r->sender, true)) {
		set_peer(stall, &told->receiver);
		set_connection(stall, &r->sender);
		SET_WORD(stall->side, sides, 0);
		return true;
	}
	set_peer(stall, &stall->proc);
	stall->proc = told->receiver;
	set_connection(stall, &r->receiver);
	SET_WORD(stall->side, sides, 1);
	return receiver_wanted;
}

/* What nagletrace's measure() computes, and the words. */
static __always_inline void set_facts(struct stall *stall, const struct nt_record *r)
{
	const bool held = r->sender.present;
	__u64 way_ns;

	stall->min_rtt_raw = (held ? r->sender.min_rtt_us : r->receiver.min_rtt_us) * 1000ULL;
	stall->duration_raw =
		held ? r->hold.end_ns - r->hold.begin_ns : r->ack.end_ns - r->ack.begin_ns;
	way_ns = r->hold.way_us * 1000ULL;
	stall->excess_raw = stall->duration_raw > way_ns ? stall->duration_raw - way_ns : 0;
	if (r->receiver.present)
		stall->pending_ack_raw = r->ack.end_ns - r->ack.begin_ns;
	stall->bytes = r->hold.bytes;
	stall->in_flight_bytes = r->hold.in_flight_bytes;
	stall->writes = r->hold.writes;
	stall->mss = r->hold.mss;
	SET_WORD(stall->cause, causes, r->cause);
	SET_WORD(stall->evidence, evidences, r->evidence);
	SET_WORD(stall->pattern, patterns, r->pattern);
	SET_WORD(stall->reason, hold_reasons, r->hold.reason);
	SET_WORD(stall->release, releases, r->hold.release);
	SET_WORD(stall->ack_reason, ack_reasons, r->ack.reason);
	SET_WORD(stall->ack_release, ack_releases, r->ack.release);
}

/*
 * Would the other end have shown something, had it been a stall? A receiver may not: no audit shows
 * here whether its timer was hidden.
 */
static __always_inline bool contradicted(const struct nt_record *r)
{
	return r->evidence == NT_EVIDENCE_INFERRED && !r->sender.present &&
	       (r->ack.freed_nothing || both_ends_are_here(&r->receiver));
}

static __always_inline void ring_submit(struct nt_record *r)
{
	struct told_stall *told = (void *)r - __builtin_offsetof(struct told_stall, record);
	struct stall *stall = &told->stall;

	__builtin_memset(stall, 0, sizeof(*stall));
	if (contradicted(r) || !set_ends(told)) {
		bpf_ringbuf_discard(told, 0);
		return;
	}
	set_facts(stall, r);
	stall->timestamp_raw = bpf_ktime_get_boot_ns() - (bpf_ktime_get_ns() - r->time_ns);
	bpf_ringbuf_submit(told, 0);
}

#endif /* NT_RING_H */
