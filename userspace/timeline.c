// SPDX-License-Identifier: GPL-2.0
#include "timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event_queue.h"
#include "hash.h"
#include "text.h"

#define MAX_ENDS    16384
#define GAP_NS      10000000ULL /* without a hold; with one, --min */
#define TCPHDR_SYN  0x02
#define STEP_NS     1000000
#define SAME_NUMBER (1U << 24) /* numbers of one connection are no further apart, mostly */

struct connection;

struct end {
	struct nt_line_end line;
	uint64_t sk;
	struct connection *connection;
	bool right;
	bool options_known, nodelay, cork;
	bool copied_known, sent_known;
	uint32_t copied_seq;
	uint32_t sent_seq; /* after the last byte sent */
	uint64_t hold_ns, ack_ns;
	bool timer_fired;
	UT_hash_handle hh;
};

/* Numbers of what the left end sends and of what the right one does. */
struct connection {
	uint64_t key;
	uint32_t number;
	struct nt_tuple left; /* the end that was seen first */
	struct end *ends[2];  /* left and right */
	bool base_known[2];
	uint32_t base[2]; /* before the first byte */
	uint64_t last_ns;
	UT_hash_handle hh;
	struct connection *next; /* of the same key: the same addresses in other namespaces */
};

struct nt_timeline {
	const struct nt_options *opts;
	struct nt_owners *owners;
	FILE *out;
	nt_line_writer *write;
	struct end *ends;
	struct connection *connections;
	uint32_t numbers; /* connections so far */
	struct nt_event_queue queue;
	uint64_t lost;      /* as far as told */
	uint64_t no_memory; /* events that we lost */
	uint64_t first_ns, last_ns;
	int64_t day_offset_ns; /* from CLOCK_MONOTONIC to the time of day */
	int err;
};

struct nt_timeline *nt_timeline_new(const struct nt_options *opts, struct nt_owners *owners,
				    FILE *out)
{
	struct nt_timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->opts = opts;
	t->owners = owners;
	t->out = out;
	t->write = opts->output == NT_OUTPUT_JSON ? nt_json_line : nt_text_line;
	return t;
}

/* ---- connections and their ends ---- */

static void remove_connection(struct nt_timeline *t, struct connection *c)
{
	struct connection *first, **link;

	HASH_FIND(hh, t->connections, &c->key, sizeof(c->key), first);
	if (first == c) {
		HASH_DEL(t->connections, c);
		if (c->next)
			HASH_ADD(hh, t->connections, key, sizeof(c->next->key), c->next);
	} else {
		for (link = &first->next; *link != c; link = &(*link)->next)
			;
		*link = c->next;
	}
	free(c);
}

static void remove_end(struct nt_timeline *t, struct end *end)
{
	struct connection *c = end->connection;

	c->ends[end->right] = NULL;
	if (!c->ends[!end->right])
		remove_connection(t, c);
	HASH_DEL(t->ends, end);
	free(end);
}

void nt_timeline_free(struct nt_timeline *t)
{
	struct end *end, *next;

	if (!t)
		return;
	HASH_ITER(hh, t->ends, end, next)
	remove_end(t, end);
	nt_event_queue_free(&t->queue);
	free(t);
}

static bool is_numbered(const struct connection *c, bool right, uint32_t seq)
{
	int32_t distance = seq - c->base[right];

	return !c->base_known[right] ||
	       ((uint32_t)distance < SAME_NUMBER || (uint32_t)-distance < SAME_NUMBER);
}

/* Might this event be of the end of a connection that was not seen yet? By its numbers too, since
 * the same addresses may be in use in other namespaces. */
static bool may_belong(const struct connection *c, bool right, const struct nt_event *e)
{
	if (c->ends[right])
		return false;
	switch (e->kind) {
	case NT_EVENT_WRITE:
	case NT_EVENT_SENT:
	case NT_EVENT_STATE:
		return is_numbered(c, right, e->seq);
	case NT_EVENT_RECEIVED:
	case NT_EVENT_READ:
		return is_numbered(c, !right, e->seq);
	default:
		return true;
	}
}

static bool is_right(const struct connection *c, const struct nt_tuple *tuple)
{
	return c->left.local_port != tuple->local_port ||
	       memcmp(c->left.local_addr, tuple->local_addr, 16) ||
	       c->left.remote_port != tuple->remote_port;
}

static struct connection *connection_of(struct nt_timeline *t, const struct nt_event *e)
{
	uint64_t key = nt_connection_key(&e->tuple);
	struct connection *first, *c;

	HASH_FIND(hh, t->connections, &key, sizeof(key), first);
	for (c = first; c; c = c->next)
		if (may_belong(c, is_right(c, &e->tuple), e))
			return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->key = key;
	c->left = e->tuple;
	c->number = ++t->numbers;
	if (first) {
		c->next = first->next;
		first->next = c;
	} else {
		HASH_ADD(hh, t->connections, key, sizeof(c->key), c);
		if (!c->hh.tbl) {
			free(c);
			return NULL;
		}
	}
	return c;
}

/* The process that wrote or read is the end's, cgroup and all; it may be gone by now. */
static void name_user(struct end *end, const struct nt_event *e)
{
	struct nt_process *process = &end->line.process;

	if (process->tgid == (pid_t)e->tgid)
		return;
	nt_process_read(e->tgid, process);
	process->tgid = e->tgid;
	memcpy(process->comm, e->comm, NT_COMM_LEN);
}

/* Whoever uses it soon, or has it open. */
static void name_owner(struct nt_timeline *t, struct end *end, const struct nt_event *e)
{
	const struct nt_event *user = nt_event_queue_user(&t->queue, e->sk);
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

static bool same_addresses(const struct nt_tuple *a, const struct nt_tuple *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port &&
	       a->netns == b->netns && !memcmp(a->local_addr, b->local_addr, 16) &&
	       !memcmp(a->remote_addr, b->remote_addr, 16);
}

/* The end of a socket, made where it is new. NULL: no memory. */
static struct end *end_of(struct nt_timeline *t, const struct nt_event *e, bool *is_new)
{
	struct end *end;

	*is_new = false;
	HASH_FIND(hh, t->ends, &e->sk, sizeof(e->sk), end);
	if (end && same_addresses(&end->line.tuple, &e->tuple))
		return end;
	if (end) /* its memory is another socket's now */
		remove_end(t, end);
	if (HASH_COUNT(t->ends) >= MAX_ENDS)
		remove_end(t, t->ends); /* the oldest */
	end = calloc(1, sizeof(*end));
	if (!end)
		return NULL;
	end->connection = connection_of(t, e);
	if (!end->connection) {
		free(end);
		return NULL;
	}
	*is_new = true;
	end->sk = e->sk;
	end->line.tuple = e->tuple;
	end->right = is_right(end->connection, &e->tuple);
	end->connection->ends[end->right] = end;
	HASH_ADD(hh, t->ends, sk, sizeof(end->sk), end);
	if (!end->hh.tbl) {
		end->connection->ends[end->right] = NULL;
		free(end); /* the connection goes with its other end, or at the end */
		return NULL;
	}
	if (!e->tgid)
		name_owner(t, end, e);
	return end;
}

/* ---- numbers ---- */

static void learn_base(struct connection *c, bool right, uint32_t first)
{
	if (c->base_known[right])
		return;
	c->base[right] = first - 1;
	c->base_known[right] = true;
}

static void learn_bases(struct end *end, const struct nt_event *e)
{
	struct connection *c = end->connection;

	switch (e->kind) {
	case NT_EVENT_WRITE:
	case NT_EVENT_HOLD_BEGIN:
		learn_base(c, end->right, e->seq);
		break;
	case NT_EVENT_READ:
		learn_base(c, !end->right, e->seq);
		break;
	case NT_EVENT_SENT:
		if (e->flags & TCPHDR_SYN) {
			c->base_known[end->right] = false;
			learn_base(c, end->right, e->seq + 1);
			break;
		}
		learn_base(c, end->right, e->seq);
		learn_base(c, !end->right, e->ack);
		break;
	case NT_EVENT_RECEIVED:
		learn_base(c, !end->right, e->seq);
		learn_base(c, end->right, e->ack);
		break;
	case NT_EVENT_STATE:
		if (e->flags == NT_TCP_ESTABLISHED) {
			learn_base(c, end->right, e->seq);
			learn_base(c, !end->right, e->ack);
		}
		break;
	}
}

/* ---- from an event to lines ---- */

/* The two clocks are not read at one time: only a step of the day's is followed, for the order's
 * sake.
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
		t->err = t->write(t->out, t->opts, line);
	line->gap_ns = 0; /* it is marked once */
	line->first_of_end = false;
}

static void tell_lost(struct nt_timeline *t, uint64_t time_ns, uint64_t lost)
{
	struct nt_line line = {.time_ns = time_ns};

	lost += t->no_memory;
	if (lost <= t->lost)
		return;
	line.since_ns = time_ns > t->first_ns ? time_ns - t->first_ns : 0;
	line.lost = lost - t->lost;
	t->lost = lost;
	put(t, &line, NT_LINE_LOST);
}

static void tell_options(struct nt_timeline *t, struct end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;

	if (end->options_known && end->nodelay == e->nodelay && end->cork == e->cork)
		return;
	end->options_known = true;
	end->nodelay = e->nodelay;
	end->cork = e->cork;
	put(t, line, NT_LINE_OPTIONS);
}

/* Nothing tells of reads but how far they came. */
static void tell_read(struct nt_timeline *t, struct end *end, struct nt_line *line)
{
	uint32_t seq = line->event->seq;

	if (end->copied_known)
		line->bytes = seq - end->copied_seq;
	end->copied_seq = seq;
	if (!end->copied_known || !line->bytes) {
		end->copied_known = true;
		return; /* not known how much, or only looked at: MSG_PEEK */
	}
	put(t, line, NT_LINE_READ);
}

/* The ACK that was put off goes out with any segment. */
static void tell_sent(struct nt_timeline *t, struct end *end, struct nt_line *line)
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

/* It is asked for again with each segment while one is owed. */
static void tell_ack_delayed(struct nt_timeline *t, struct end *end, struct nt_line *line)
{
	if (end->line.acking)
		return;
	put(t, line, NT_LINE_ACK_DELAYED);
	end->line.acking = true;
	end->timer_fired = false;
	end->ack_ns = line->time_ns;
}

static void tell_hold_begin(struct nt_timeline *t, struct end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;

	put(t, line, NT_LINE_HOLD_BEGIN);
	end->line.holds = true;
	end->line.reason = e->reason;
	end->line.held_bytes = e->bytes;
}

static void tell(struct nt_timeline *t, struct end *end, struct nt_line *line)
{
	const struct nt_event *e = line->event;

	switch (e->kind) {
	case NT_EVENT_READ:
		tell_read(t, end, line);
		break;
	case NT_EVENT_SENT:
		tell_sent(t, end, line);
		break;
	case NT_EVENT_RECEIVED:
		/* what comes to an application that has taken all shows where its reads begin */
		if (e->bytes && e->drained && !end->copied_known) {
			end->copied_known = true;
			end->copied_seq = e->seq;
		}
		put(t, line, NT_LINE_RECEIVED);
		break;
	case NT_EVENT_HOLD_BEGIN:
		tell_hold_begin(t, end, line);
		break;
	case NT_EVENT_HOLD_END:
		line->duration_ns = e->duration_ns;
		put(t, line, NT_LINE_HOLD_END);
		end->line.holds = false;
		break;
	case NT_EVENT_ACK_DELAYED:
		tell_ack_delayed(t, end, line);
		break;
	case NT_EVENT_ACK_TIMER:
		end->timer_fired = true;
		put(t, line, NT_LINE_ACK_TIMER);
		break;
	default:
		put(t, line, (enum nt_line_kind)e->kind);
	}
}

static uint64_t gap_before(const struct nt_timeline *t, const struct connection *c,
			   uint64_t time_ns)
{
	bool holds =
		(c->ends[0] && c->ends[0]->line.holds) || (c->ends[1] && c->ends[1]->line.holds);
	uint64_t least = holds && t->opts->min_ns < GAP_NS ? t->opts->min_ns : GAP_NS;
	uint64_t gap = c->last_ns && time_ns > c->last_ns ? time_ns - c->last_ns : 0;

	return gap >= least ? gap : 0;
}

static void process(struct nt_timeline *t, const struct nt_event *e)
{
	struct nt_line line = {.time_ns = e->time_ns, .event = e, .bytes = e->bytes};
	struct connection *c;
	struct end *end;
	bool is_new;

	if (!t->first_ns)
		t->first_ns = e->time_ns;
	t->last_ns = e->time_ns;
	tell_lost(t, e->time_ns, e->lost);
	end = end_of(t, e, &is_new);
	if (!end) {
		t->no_memory++;
		return;
	}
	if (e->tgid)
		name_user(end, e);
	c = end->connection;
	learn_bases(end, e);
	line.since_ns = e->time_ns > t->first_ns ? e->time_ns - t->first_ns : 0;
	line.gap_ns = gap_before(t, c, e->time_ns);
	line.connection = c->number;
	line.end = &end->line;
	line.other = c->ends[!end->right] ? &c->ends[!end->right]->line : NULL;
	line.right = end->right;
	line.first_of_end = is_new;
	line.seq = e->seq - c->base[e->kind == NT_EVENT_RECEIVED ? !end->right : end->right];
	line.ack = e->ack - c->base[e->kind == NT_EVENT_RECEIVED ? end->right : !end->right];
	if (e->kind != NT_EVENT_STATE)
		tell_options(t, end, &line);
	tell(t, end, &line);
	c->last_ns = e->time_ns;
	if (e->kind == NT_EVENT_STATE && e->flags == NT_TCP_CLOSE)
		remove_end(t, end);
}

void nt_timeline_add(struct nt_timeline *t, const struct nt_event *event)
{
	if (nt_event_queue_add(&t->queue, event))
		t->no_memory++;
}

int nt_timeline_write(struct nt_timeline *t, uint64_t until_ns, uint64_t lost)
{
	size_t n = nt_event_queue_sort(&t->queue, until_ns);

	for (size_t i = 0; i < n; i++)
		process(t, nt_event_queue_get(&t->queue, i));
	nt_event_queue_remove(&t->queue, n);
	if (until_ns == UINT64_MAX)
		tell_lost(t, t->last_ns, lost);
	return t->err;
}
