/* SPDX-License-Identifier: GPL-2.0 */
/* Models the world: sockets, segments under way, a clock that stands still while something happens,
 * and a queue of events to come. */
#pragma once

#include "programs.h"

#define WINDOW_SCALE 7
#define WAITING 8 /* a socket keeps so many spans of data out of order */

struct packet {
	struct sk_buff skb; /* first, since the programs see it */
	u64 sent_ns;
	bool again; /* it was sent more than once */
	unsigned char header[32];
};

/* Only the model knows how the ACK of a segment came to be sent. */
enum lateness {
	ACK_PROMPT,
	ACK_BY_TIMER,
	ACK_BY_OTHERS, /* the ACK was pending, and something else sent it */
};

/* A segment on the wire. */
struct wire {
	struct wire *next; /* in a backlog */
	u32 seq, end_seq, len, ack, window, mss;
	u32 ts_value, ts_echo;
	u8 flags;
	bool again;
	bool locked; /* the ACK's timer found the socket in use */
	enum lateness lateness;
	struct nt_ack_part late; /* the late ACK that it carries, as the model knows it */
	bool late_pingpong, late_lone, late_deferred;
	u64 sent_ns;
};

struct span {
	u32 seq, end_seq;
};

struct endpoint;

struct model_timer {
	struct timer_list *list;
	bool armed;
	bool deferred; /* the timer expired while the application had the socket */
	u32 generation;
};

/* A hold as the model made it. */
struct true_hold {
	bool active;
	u8 reason;
	u32 releases;    /* a bit for each possible release: some cases leave open which */
	bool any_writes; /* an earlier reason held it, in which writes are not counted */
	u32 seq, end_seq, in_flight, writes, write_bytes, written, mss, retransmitted, rcv_nxt;
	bool recovered; /* from loss, when an ACK came */
	bool first;     /* it is of the first segments of the connection, which alternate */
	u64 begin_ns, end_ns;
	u64 sent_ns;  /* when data was sent last, before it began */
	u64 way_us;   /* of a prompt ACK, where one released it */
	u64 since_ns; /* when a stallable reason first held the same bytes */
	u8 cause, pattern;  /* of the stall, if it was one */
	u8 pattern_alone;   /* by the writes of this stall alone, if they tell it */
	bool nearly;        /* one end alone may take it for a stall, though it was none */
	bool clean;         /* one end alone has to infer it */
	bool blurred;  /* whether it was a stall depends on when in a jiffy data came */
	bool in_doubt; /* the receiver's timer had expired, but something else sent the ACK */
	bool felt_clean;    /* the receiver's end alone has to infer it */
	bool felt;          /* the ACK that released it came from the receiver's timer */
	bool told;          /* a record has reported it: as a stall, if it was one */
	bool shown;         /* a record has reported it as a mere hold */
	bool probe_announced; /* the loss probe expired while the application had the socket */
	bool unprobed;      /* tcp_probe did not show its ACK: in doubt, no stall is reported */
	u64 ack_sent_ns;    /* when the releasing ACK was sent */
	struct nt_ack_part late; /* the releasing ACK, if it was late; else its end is 0 */
	bool late_locked, late_pingpong;
	u64 last_ack_ns;    /* the ACK before the releasing one, or the begin */
	u32 last_in_flight; /* at that time */
};

#define HOLDS_KEPT 32

struct endpoint {
	struct tcp_sock tp; /* first, since the programs see it */
	struct endpoint *peer;
	struct conversation *talk;
	bool client;
	/* send */
	struct packet *queue_tail, *unacked, *unacked_tail;
	u32 sndbuf, goal_segments, max_window, window_seq, most_cwnd, mdev_us, duplicates;
	u8 backoff;
	bool probe_sent, defers;
	struct model_timer write_timer;
	unsigned long write_timeout; /* jiffies; the programs may read it where the field exists */
	u64 pacing_rate;   /* bytes per second; 0: not paced */
	bool pacing_armed;
	u32 in_device, small_queue; /* bytes, including an skb's overhead */
	u64 device_ns;              /* the device keeps a segment so long; 0: not at all */
	u64 device_free_ns;
	u64 again_ns; /* the last retransmission */
	bool tsq_deferred;
	/* receive */
	u32 rcvbuf, ts_recent;
	u64 ato_ns, received_ns;
	struct model_timer ack_timer;
	u64 ack_timeout; /* jiffies */
	bool quick_route, fin_received, out_of_order;
	struct span waiting[WAITING];
	u32 n_waiting;
	struct wire *backlog, **backlog_end;
	u64 arrives_ns; /* the arrival of the last segment under way to this end */
	bool usec_stamps; /* timestamps count microseconds; the route's tcp_usec_ts */
	/* the truth */
	struct true_hold hold, held[HOLDS_KEPT];
	bool stalled;        /* before, when it awaited this byte of its peer */
	u32 stalled_rcv_nxt;
	u32 n_held, n_told;
	bool ack_pending, ack_by_timer, ack_locked, ack_pingpong;
	u8 ack_why;
	u64 ack_pending_ns; /* since the last data came */
	u32 came_pending; /* segments with data since the ACK became pending */
	bool sent_data, wrote;
	u64 cwnd_felt_ns; /* when a late ACK was sent that opened a congestion window of one */
	const struct wire *came; /* the segment being processed */
	u32 una_before;          /* snd_una before that segment */
	/* the application */
	u32 parts, part_left, parts_size; /* the message that it is writing */
	bool more;                        /* the current part is written with MSG_MORE */
	bool turn_comes, was_slow, hesitates;
	bool gone; /* its state is CLOSE: the world destroys it later */
	bool destroyed;
	bool reset; /* and not destroyed so far, before which no program learns of it */
};

enum stage {
	STAGE_IDLE,
	STAGE_REQUEST, /* the client writes */
	STAGE_AWAIT,   /* the server has to read it all */
	STAGE_REPLY,   /* the server writes */
	STAGE_REPLIED, /* the client has to read it all */
};

/* A connection, with the messages that its two ends exchange. */
struct conversation {
	struct endpoint end[2]; /* the client's, the server's */
	u32 number;
	u32 life;               /* counts the connections that this memory has held */
	u64 one_way_ns, jitter_ns;
	u32 loss; /* one segment in so many is lost; 0: none */
	u32 to_read[2];
	enum stage stage;
	bool reply; /* the current request wants a reply */
	bool slow_reader, options, corks;
	bool chatty;  /* the server writes without a request */
	bool hostile; /* a stranger forges segments */
};

enum event_kind {
	EVENT_NOTHING = 0, /* it was handled before its time */
	EVENT_ARRIVES = 1, /* a struct wire */
	EVENT_TIMER,
	EVENT_PACING,
	EVENT_DEVICE, /* a segment leaves the device: detail, its bytes */
	EVENT_TASKLET,
	EVENT_APP,     /* a turn of the application */
	EVENT_RELEASE, /* the application unlocks the socket */
	EVENT_DESTROY,
	EVENT_WROTE, /* a write returns to its system call; detail: its bytes */
	EVENT_CHAT,
	EVENT_FORGED,
	EVENT_END, /* the connection has lived long enough */
};

struct event {
	u64 at_ns, order;
	enum event_kind kind;
	struct endpoint *e;
	void *object;
	u64 detail;
	u32 life; /* the connection's life; events of an earlier life do nothing */
};

static struct {
	u64 now_ns, tick_ns, order;
	struct event *events;
	u32 n_events, room;
	u64 random;
	u64 steps; /* programs run */
	bool timeout_field; /* the retransmit timer may expire early; icsk_timeout says when it is due */
	bool usec_stamps;
} world = {.tick_ns = 4 * MS};

/* NAGLETRACE_MODEL_TRACE=FROM-TO (us) writes what happens in that time to standard error. */
static u64 trace_from_ns = ~0ULL, trace_to_ns;

#define TRACE(e, format, ...)                                                                     \
	do {                                                                                      \
		if (world.now_ns >= trace_from_ns && world.now_ns <= trace_to_ns)                 \
			fprintf(stderr, "%llu us %u%c nxt %u una %u write %u: " format "\n",      \
				(unsigned long long)world.now_ns / 1000, (e)->talk->number,       \
				(e)->client ? 'c' : 's', (e)->tp.snd_nxt, (e)->tp.snd_una,        \
				(e)->tp.write_seq, ##__VA_ARGS__);                                \
	} while (0)

static struct sock *sock_of(struct endpoint *e)
{
	return &e->tp.inet_conn.icsk_inet.sk;
}

static u64 world_jiffies(void)
{
	return world.now_ns / world.tick_ns;
}

static u64 random_u64(void)
{
	return random_next(&world.random);
}

/* Returns a number from 0 to n - 1. */
static u64 random_below(u64 n)
{
	return (random_u64() >> 11) % n;
}

static u64 random_from(u64 least, u64 most)
{
	return least + random_below(most - least + 1);
}

static bool one_in(u64 n)
{
	return n && !random_below(n);
}

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void world_at(u64 at_ns, enum event_kind kind, struct endpoint *e, void *object, u64 detail)
{
	struct event event = {at_ns, world.order++, kind, e, object, detail, e->talk->life};
	u32 i = world.n_events++;

	if (world.n_events > world.room) {
		world.room = world.room ? 2 * world.room : 1024;
		world.events = realloc(world.events, world.room * sizeof(event));
	}
	for (; i && event_before(&event, &world.events[(i - 1) / 2]); i = (i - 1) / 2)
		world.events[i] = world.events[(i - 1) / 2];
	world.events[i] = event;
}

static struct event world_next(void)
{
	struct event first = world.events[0], last = world.events[--world.n_events];
	u32 i = 0, child;

	while ((child = 2 * i + 1) < world.n_events) {
		if (child + 1 < world.n_events &&
		    event_before(&world.events[child + 1], &world.events[child]))
			child++;
		if (!event_before(&world.events[child], &last))
			break;
		world.events[i] = world.events[child];
		i = child;
	}
	world.events[i] = last;
	return first;
}

/* The CPU does something else meanwhile; the other events wait for it. */
static void world_delay(u64 ns)
{
	world.now_ns = host.now_ns = world.now_ns + ns;
	host.jiffies = world_jiffies();
}

/* model.c defines these; tcp.h reports to the world by them. */
static void world_transmit(struct endpoint *e, struct wire *w, u32 device_bytes);
static void world_readable(struct endpoint *e);
static void world_closed(struct endpoint *e, u64 destroyed_ns);

static void packet_from_wire(struct packet *p, const struct wire *w)
{
	struct tcp_skb_cb *cb = (struct tcp_skb_cb *)p->skb.cb;
	u32 value = __builtin_bswap32(w->ts_value), echo = __builtin_bswap32(w->ts_echo);

	cb->seq = w->seq;
	cb->end_seq = w->end_seq;
	cb->ack_seq = w->ack;
	cb->tcp_flags = w->flags;
	p->skb.len = sizeof(p->header) + w->len;
	p->header[14] = w->window >> WINDOW_SCALE >> 8;
	p->header[15] = w->window >> WINDOW_SCALE;
	memcpy(p->header + 20, (const u8[]){1, 1, 8, 10}, 4);
	memcpy(p->header + 24, &value, 4);
	memcpy(p->header + 28, &echo, 4);
}
