// SPDX-License-Identifier: GPL-2.0
#include "timeline/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "timeline/queue.h"
#include "base/clock.h"
#include "base/text.h"
#include "timeline/ends.h"

#define GAP_NS  10000000ULL /* the shortest gap to show; with a hold, --min if less */
#define STEP_NS 1000000

struct nt_timeline {
	const struct nt_settings *settings;
	struct nt_owners *owners;
	nt_line_writer *write;
	void *context; /* for write() */
	struct nt_timeline_ends ends;
	struct nt_event_queue queue;
	uint64_t dropped;   /* dropped events that lines have shown */
	uint64_t no_memory; /* events that we dropped for lack of memory */
	uint64_t first_ns, last_ns;
	bool printed;          /* the event that we process made a line */
	int64_t day_offset_ns; /* from CLOCK_MONOTONIC to the time of day */
	int err;
};

struct nt_timeline *nt_timeline_new(const struct nt_settings *settings, struct nt_owners *owners,
				    nt_line_writer *write, void *context)
{
	struct nt_timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->settings = settings;
	t->owners = owners;
	t->write = write;
	t->context = context;
	return t;
}

void nt_timeline_free(struct nt_timeline *t)
{
	if (!t)
		return;
	nt_timeline_ends_free(&t->ends);
	nt_event_queue_free(&t->queue);
	free(t);
}

/* The process that wrote or read is the end's, with its cgroup; it may be gone by now. */
static void name_user(struct nt_timeline_end *end, const struct nt_event *e)
{
	struct nt_process *process = &end->line.process;

	if (process->tgid == (pid_t)e->tgid)
		return;
	nt_process_read(e->tgid, process);
	process->tgid = e->tgid;
	memcpy(process->comm, e->comm, NT_COMM_LEN);
}

/* Names the process that uses the socket next, or else one that has it open. */
static void name_owner(struct nt_timeline *t, struct nt_timeline_end *end, const struct nt_event *e)
{
	const struct nt_event *user = nt_event_queue_user(&t->queue, e);
	struct nt_end at = {.sk = e->sk, .tuple = e->tuple};
	const struct nt_owner *owner;
	size_t count;

	if (user) {
		name_user(end, user);
		return;
	}
	owner = nt_owners_find(t->owners, &at, e->time_ns, &count);
	if (owner)
		nt_process_read(owner[count - 1].tgid, &end->line.process);
}

/* ---- from an event to lines ---- */

/*
 * We cannot read both clocks at one time. So the offset follows only steps of the time of day: the
 * lines stay in order.
 */
static int64_t day_of(struct nt_timeline *t, uint64_t time_ns)
{
	int64_t offset = nt_time_of_day_ns(0);

	if (llabs(offset - t->day_offset_ns) >= STEP_NS)
		t->day_offset_ns = offset;
	return t->day_offset_ns + (int64_t)time_ns;
}

static void put(struct nt_timeline *t, struct nt_line *line, enum nt_line_kind kind)
{
	line->kind = kind;
	line->day_ns = day_of(t, line->time_ns);
	if (!t->err)
		t->err = t->write(t->context, line);
	line->gap_ns = 0; /* one line shows it */
	line->first_of_end = false;
	t->printed = true;
}

static void print_dropped(struct nt_timeline *t, uint64_t dropped)
{
	struct nt_line line = {.time_ns = t->last_ns, .since_ns = t->last_ns - t->first_ns};

	dropped += t->no_memory;
	if (dropped <= t->dropped)
		return;
	line.dropped = dropped - t->dropped;
	t->dropped = dropped;
	put(t, &line, NT_LINE_DROPPED);
	nt_timeline_ends_forget(&t->ends);
}

static void print_options(struct nt_timeline *t, struct nt_timeline_end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;

	if (end->options_known && end->nodelay == e->nodelay && end->cork == e->cork)
		return;
	end->options_known = true;
	end->nodelay = e->nodelay;
	end->cork = e->cork;
	put(t, line, NT_LINE_OPTIONS);
}

/*
 * A read event shows only how far the application has read. How much it read is unknown if we do
 * not know where it began, and 0 bytes if it only looked: MSG_PEEK.
 */
static void print_read(struct nt_timeline *t, struct nt_timeline_end *end, struct nt_line *line)
{
	uint32_t seq = line->event->seq;
	bool known = end->copied_known;

	line->bytes = seq - end->copied_seq;
	end->copied_seq = seq;
	end->copied_known = true;
	if (known && (int32_t)line->bytes > 0)
		put(t, line, NT_LINE_READ);
}

/* Bytes that are written during a hold are held too. */
static void print_write(struct nt_timeline *t, struct nt_timeline_end *end, struct nt_line *line)
{
	put(t, line, NT_LINE_WRITE);
	if (end->line.holds)
		end->line.held_bytes += line->bytes;
}

/* The pending ACK goes out with any segment. */
static void print_sent(struct nt_timeline *t, struct nt_timeline_end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;
	uint32_t after = e->seq + e->bytes;

	if (e->bytes && end->sent_known)
		line->retransmission = (int32_t)(e->seq - end->sent_seq) < 0;
	if (!end->sent_known || (int32_t)(after - end->sent_seq) > 0)
		end->sent_seq = after;
	end->sent_known = true;
	put(t, line, NT_LINE_SENT);
	if (!end->line.acking)
		return;
	end->line.acking = false;
	line->duration_ns = e->time_ns > end->ack_ns ? e->time_ns - end->ack_ns : 0;
	if (end->timer_fired)
		line->how = NT_ACK_TIMER;
	else if (e->bytes)
		line->how = NT_ACK_PIGGYBACK;
	else
		line->how = e->drained ? NT_ACK_READ : NT_ACK_SEGMENT;
	put(t, line, NT_LINE_ACK_SENT);
}

/* The kernel delays the ACK again with each segment that comes while one is pending. */
static void print_ack_delayed(struct nt_timeline *t, struct nt_timeline_end *end,
			      struct nt_line *line)
{
	if (end->line.acking)
		return;
	put(t, line, NT_LINE_ACK_DELAYED);
	end->line.acking = true;
	end->timer_fired = false;
	end->ack_ns = line->time_ns;
}

static void print_hold_begin(struct nt_timeline *t, struct nt_timeline_end *end,
			     struct nt_line *line)
{
	const struct nt_event *e = line->event;

	put(t, line, NT_LINE_HOLD_BEGIN);
	end->line.holds = true;
	end->line.reason = e->reason;
	end->line.held_bytes = e->bytes;
}

static void print(struct nt_timeline *t, struct nt_timeline_end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;

	switch (e->kind) {
	case NT_EVENT_WRITE:
		print_write(t, end, line);
		break;
	case NT_EVENT_READ:
		print_read(t, end, line);
		break;
	case NT_EVENT_SENT:
		print_sent(t, end, line);
		break;
	case NT_EVENT_RECEIVED:
		/* if the application has read all before, its reads begin at this segment */
		if (e->bytes && e->drained && !end->copied_known) {
			end->copied_known = true;
			end->copied_seq = e->seq;
		}
		put(t, line, NT_LINE_RECEIVED);
		break;
	case NT_EVENT_HOLD_BEGIN:
		print_hold_begin(t, end, line);
		break;
	case NT_EVENT_HOLD_END:
		line->duration_ns = e->duration_ns;
		put(t, line, NT_LINE_HOLD_END);
		end->line.holds = false;
		break;
	case NT_EVENT_ACK_DELAYED:
		print_ack_delayed(t, end, line);
		break;
	case NT_EVENT_ACK_TIMER:
		end->timer_fired = true;
		put(t, line, NT_LINE_ACK_TIMER);
		break;
	default:
		put(t, line, (enum nt_line_kind)e->kind);
	}
}

static uint64_t gap_before(const struct nt_timeline *t, const struct nt_timeline_connection *c,
			   uint64_t time_ns)
{
	bool holds =
		(c->ends[0] && c->ends[0]->line.holds) || (c->ends[1] && c->ends[1]->line.holds);
	uint64_t least = holds && t->settings->min_ns < GAP_NS ? t->settings->min_ns : GAP_NS;
	uint64_t gap = c->last_ns && time_ns > c->last_ns ? time_ns - c->last_ns : 0;

	return gap >= least ? gap : 0;
}

/* The fields of a line that do not depend on the kind of the event. */
static struct nt_line line_of(const struct nt_timeline *t, const struct nt_timeline_end *end,
			      const struct nt_event *e, bool is_new)
{
	const struct nt_timeline_connection *c = end->connection;
	bool came = e->kind == NT_EVENT_RECEIVED;

	return (struct nt_line){
		.event = e,
		.bytes = e->bytes,
		.time_ns = t->last_ns,
		.since_ns = t->last_ns - t->first_ns,
		.gap_ns = gap_before(t, c, t->last_ns),
		.connection = c->number,
		.end = &end->line,
		.other = c->ends[!end->right] ? &c->ends[!end->right]->line : NULL,
		.right = end->right,
		.first_of_end = is_new,
		.seq = nt_timeline_number(end, came, e->seq),
		.ack = nt_timeline_number(end, !came, e->ack),
	};
}

/*
 * An event that comes late gets the time of the line before it: so does a hold whose end went
 * unseen.
 */
static void process(struct nt_timeline *t, const struct nt_event *e)
{
	struct nt_timeline_end *end;
	struct nt_line line;
	bool is_new;

	if (!t->first_ns)
		t->first_ns = t->last_ns = e->time_ns;
	if (e->time_ns > t->last_ns)
		t->last_ns = e->time_ns;
	print_dropped(t, e->dropped);
	nt_timeline_ends_sweep(&t->ends, t->last_ns);
	end = nt_timeline_end_of(&t->ends, e, &is_new);
	if (!end) {
		t->no_memory += is_new;
		return;
	}
	if (e->tgid)
		name_user(end, e);
	else if (is_new)
		name_owner(t, end, e);
	line = line_of(t, end, e, is_new);
	t->printed = false;
	if (e->kind != NT_EVENT_STATE)
		print_options(t, end, &line);
	print(t, end, &line);
	if (t->printed)
		end->connection->last_ns = t->last_ns;
	if (e->kind == NT_EVENT_STATE && e->flags == NT_TCP_CLOSE)
		end->closed_ns = t->last_ns;
}

void nt_timeline_add(struct nt_timeline *t, const struct nt_event *event)
{
	if (nt_event_queue_add(&t->queue, event))
		t->no_memory++;
}

size_t nt_timeline_queued(const struct nt_timeline *t)
{
	return t->queue.count;
}

bool nt_timeline_waits(struct nt_timeline *t, uint64_t until_ns)
{
	return nt_event_queue_sort(&t->queue, until_ns) > 0;
}

int nt_timeline_write(struct nt_timeline *t, uint64_t until_ns, uint64_t dropped,
		      uint64_t give_up_ns)
{
	size_t n = nt_event_queue_sort(&t->queue, until_ns), i;

	/* one at least, or nothing would ever be written */
	for (i = 0; i < n && (!i || nt_now_ns() < give_up_ns); i++)
		process(t, nt_event_queue_get(&t->queue, i));
	nt_event_queue_remove(&t->queue, i);
	if (until_ns == UINT64_MAX)
		print_dropped(t, dropped);
	return t->err;
}

int nt_timeline_leave_out(struct nt_timeline *t, uint64_t dropped)
{
	size_t n = t->queue.count;

	nt_event_queue_remove(&t->queue, n);
	print_dropped(t, dropped + n);
	return t->err;
}
