// SPDX-License-Identifier: GPL-2.0
/* Writes each event as a record of type `event`, by userspace/output/nagletrace.schema.json. */
#include "output/timeline.h"

#include "output/json.h"
#include "terms/words.h"

static const char *const kinds[NT_LINE_KINDS] = {
	[NT_LINE_WRITE] = "write",
	[NT_LINE_READ] = "read",
	[NT_LINE_SENT] = "sent",
	[NT_LINE_RECEIVED] = "received",
	[NT_LINE_HOLD_BEGIN] = "hold_begin",
	[NT_LINE_HOLD_END] = "hold_end",
	[NT_LINE_ACK_DELAYED] = "ack_delayed",
	[NT_LINE_ACK_TIMER] = "ack_timer",
	[NT_LINE_ACK_SENT] = "ack_sent",
	[NT_LINE_OPTIONS] = "options",
	[NT_LINE_STATE] = "state",
	[NT_LINE_DROPPED] = "dropped",
};

static void add_signed(struct json_object *o, const char *key, int64_t value)
{
	json_object_object_add(o, key, json_object_new_int64(value));
}

static void add_details(struct json_object *o, const struct nt_line *line)
{
	const struct nt_event *e = line->event;

	switch (line->kind) {
	case NT_LINE_WRITE:
	case NT_LINE_READ:
		nt_json_number(o, "bytes", line->bytes);
		break;
	case NT_LINE_SENT:
	case NT_LINE_RECEIVED:
		add_signed(o, "seq", line->seq);
		nt_json_number(o, "bytes", line->bytes);
		add_signed(o, "ack", line->ack);
		if (line->retransmission)
			nt_json_flag(o, "retransmission", true);
		break;
	case NT_LINE_HOLD_BEGIN:
		nt_json_string(o, "reason", nt_hold_reason_word(e->reason));
		nt_json_number(o, "bytes", line->bytes);
		nt_json_number(o, "in_flight_bytes", e->in_flight_bytes);
		break;
	case NT_LINE_HOLD_END:
		nt_json_string(o, "reason", nt_hold_reason_word(e->reason));
		nt_json_string(o, "release", nt_release_word(e->release));
		nt_json_number(o, "bytes", line->bytes);
		nt_json_number(o, "duration_us", line->duration_ns / 1000);
		break;
	case NT_LINE_ACK_SENT:
		nt_json_string(o, "release", nt_ack_release_word(line->how));
		nt_json_number(o, "duration_us", line->duration_ns / 1000);
		break;
	case NT_LINE_OPTIONS:
		nt_json_options(o, e->nodelay, e->cork, e->pingpong, e->quick);
		break;
	case NT_LINE_STATE:
		nt_json_string(o, "state",
			       e->flags == NT_TCP_ESTABLISHED ? "established" : "closed");
		break;
	default:
		break;
	}
}

int nt_json_timeline_line(const struct nt_writer *writer, FILE *out, const struct nt_line *line)
{
	struct json_object *o = nt_json_new("event");

	nt_json_time_of_day(o, "time", line->day_ns);
	nt_json_string(o, "event", kinds[line->kind]);
	if (line->kind == NT_LINE_DROPPED) {
		nt_json_number(o, "events", line->dropped);
		return nt_json_write(out, o);
	}
	nt_json_number(o, "connection", line->connection);
	nt_json_process(o, &line->end->process, line->event->tid);
	nt_json_tuple(o, &line->end->tuple);
	add_details(o, line);
	return nt_json_write(out, o);
}
