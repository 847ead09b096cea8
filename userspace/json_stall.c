// SPDX-License-Identifier: GPL-2.0
#include "json_stall.h"

#include "json_parts.h"
#include "words.h"

static void add_options(struct json_object *o, const struct nt_end *end)
{
	nt_json_options(o, end->nodelay, end->cork, end->pingpong, end->quick);
}

static void add_hold(struct json_object *o, const struct nt_hold_part *hold)
{
	struct json_object *h = json_object_new_object();

	nt_json_string(h, "reason", nt_hold_reason_word(hold->reason));
	nt_json_string(h, "release", nt_release_word(hold->release));
	nt_json_number(h, "bytes", hold->bytes);
	nt_json_number(h, "in_flight_bytes", hold->in_flight_bytes);
	if (hold->writes)
		nt_json_number(h, "writes", hold->writes);
	nt_json_number(h, "mss", hold->mss);
	json_object_object_add(o, "hold", h);
}

static uint64_t pending_us(const struct nt_ack_part *ack)
{
	return ack->end_ns > ack->begin_ns ? (ack->end_ns - ack->begin_ns) / 1000 : 0;
}

static void add_peer(struct json_object *o, const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;
	const struct nt_end *end = nt_stall_peer(stall);
	struct json_object *peer;

	if (!end->present)
		return;
	peer = json_object_new_object();
	nt_json_process(peer, &stall->peer, stall->side == NT_SIDE_RECEIVER ? r->sender.tid : 0);
	if (end->tuple.netns != nt_stall_self(stall)->tuple.netns)
		nt_json_number(peer, "netns", end->tuple.netns);
	add_options(peer, end);
	if (stall->side == NT_SIDE_SENDER) {
		nt_json_number(peer, "pending_ack_us", pending_us(&r->ack));
		nt_json_string(peer, "end", nt_ack_end_word(r->ack.end));
		nt_json_string(peer, "why", nt_ack_why_word(r->ack.why));
	} else {
		add_hold(peer, &r->hold);
	}
	json_object_object_add(o, "peer", peer);
}

static void add_pending_ack(struct json_object *o, const struct nt_ack_part *ack)
{
	struct json_object *p = json_object_new_object();

	nt_json_number(p, "us", pending_us(ack));
	nt_json_string(p, "end", nt_ack_end_word(ack->end));
	nt_json_string(p, "why", nt_ack_why_word(ack->why));
	nt_json_number(p, "bytes", ack->bytes);
	json_object_object_add(o, "pending_ack", p);
}

/* Where the two spans of a stall seen at both ends lie, one against the other. */
static void add_order(struct json_object *o, const struct nt_record *r)
{
	int64_t after_ns = r->ack.begin_ns - r->hold.begin_ns;

	if (r->sender.present && r->receiver.present && r->ack.begin_ns && r->hold.begin_ns)
		json_object_object_add(o, "ack_after_hold_us",
				       json_object_new_int64(after_ns / 1000));
}

struct json_object *nt_json_stall_record(const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_record *r = &stall->record;
	const struct nt_end *self = nt_stall_self(stall);
	struct json_object *o = nt_json_new(stall->is_stall ? "stall" : "hold");

	nt_json_string(o, "cause", nt_cause_word(r->cause));
	nt_json_time(o, r->time_ns);
	nt_json_string(o, "side", stall->side == NT_SIDE_SENDER ? "sender" : "receiver");
	nt_json_string(o, "evidence", nt_evidence_word(r->evidence));
	nt_json_number(o, "duration_us", stall->duration_ns / 1000);
	if (stall->is_stall)
		nt_json_number(o, "excess_us", stall->excess_ns / 1000);
	if (stall->min_rtt_us)
		nt_json_number(o, "min_rtt_us", stall->min_rtt_us);
	nt_json_process(o, &stall->self, stall->tid);
	nt_json_tuple(o, &self->tuple);
	nt_json_string(o, "pattern", nt_pattern_word(r->pattern));
	add_options(o, self);
	if (stall->side == NT_SIDE_SENDER)
		add_hold(o, &r->hold);
	else
		add_pending_ack(o, &r->ack);
	add_peer(o, stall);
	add_order(o, r);
	nt_json_stack(o, stall, stacks);
	return o;
}
