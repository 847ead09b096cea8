// SPDX-License-Identifier: GPL-2.0
/*
 * The programs of bpf/, compiled for the host over shim/, against what real kernels showed them:
 * tests/model/record.py made the recordings, and the truth behind each is the wire's and the
 * application's. NAGLETRACE_RECORDINGS names another directory of them, NAGLETRACE_MODEL_SEED
 * chooses which programs are skipped.
 */
#include <glob.h>
#include <json-c/json.h>
#include <zlib.h>

#include "programs.h"
#include "recorded.h"

#define SOCKETS 1024
#define SPACES  4
#define STALLS  1024
#define ENDS_NS       (5 * MS) /* how exact the wire's clock and ours agree; more in a guest */
#define ENDS_GUEST_NS (60 * MS)
#define REPLAYS       200

struct true_stall {
	char sender[64], receiver[64];
	u64 ended_ns, duration_ns;
	u8 cause;
	bool doubtful; /* the witnesses neither demand nor forbid it */
	bool told;
};

static struct {
	char name[512];
	struct recorded_header header;
	struct recorded *snapshots;
	struct true_stall stalls[STALLS];
	u32 n_stalls;
	u64 ends_ns;
	u32 spaces[2]; /* network namespaces: one for each end */
} recording;

/* A socket as its last snapshot has it. The programs see tp. */
struct replayed {
	struct tcp_sock tp;
	struct sk_buff head, skb;
	struct dst_entry dst;
	u32 metrics[16];
	u8 header[RECORDED_HEADER_BYTES];
	u64 recorded_sk; /* where it was in the kernel; 0: gone */
};

static struct {
	struct replayed sockets[SOCKETS];
	u32 n_sockets;
	struct net spaces[SPACES];
	u32 skip; /* one program in so many is skipped; 0: none */
	u64 skipped, destroys_skipped, run, wrong;
	u64 contradicted; /* by the other end, which is here: user space takes them back */
	u64 random;
	bool exact; /* nothing is skipped: durations count too */
} replay;

static struct task_struct task = {.pid = 4242, .tgid = 4242, .group_leader = &task, .comm = "recorded"};
static char timer_functions[2];

/* ---- the truth ---- */

static struct json_object *member(struct json_object *of, const char *name)
{
	struct json_object *value = NULL;

	assert_true(json_object_object_get_ex(of, name, &value));
	return value;
}

static void read_stall(struct json_object *told)
{
	const char *cause = json_object_get_string(member(told, "cause"));
	struct true_stall *s = &recording.stalls[recording.n_stalls++];

	assert_true(recording.n_stalls <= STALLS);
	memset(s, 0, sizeof(*s));
	s->cause = !strcmp(cause, "cork_ceiling") ? NT_CAUSE_CORK_CEILING
						  : NT_CAUSE_NAGLE_DELAYED_ACK;
	snprintf(s->sender, sizeof(s->sender), "%s", json_object_get_string(member(told, "sender")));
	snprintf(s->receiver, sizeof(s->receiver), "%s",
		 json_object_get_string(member(told, "receiver")));
	s->ended_ns = json_object_get_int64(member(told, "ended_ns"));
	s->duration_ns = json_object_get_int64(member(told, "duration_ns"));
	s->doubtful = *json_object_get_string(member(told, "doubt"));
}

static void read_truth(gzFile file)
{
	static char text[1 << 20];
	int bytes = gzread(file, text, sizeof(text) - 1);
	struct json_object *told, *stalls;

	assert_in_range(bytes, 0, sizeof(text) - 2);
	text[bytes] = '\0';
	told = json_tokener_parse(text);
	if (!told)
		fail_msg("%s has no truth behind %u snapshots", recording.name, recording.header.count);
	recording.n_stalls = 0;
	recording.ends_ns = json_object_get_boolean(member(told, "guest")) ? ENDS_GUEST_NS : ENDS_NS;
	stalls = member(told, "stalls");
	for (size_t i = 0; i < json_object_array_length(stalls); i++)
		read_stall(json_object_array_get_idx(stalls, i));
	json_object_put(told);
}

/* ---- the recording ---- */

static void read_recording(const char *path)
{
	struct recorded_header *h = &recording.header;
	gzFile file = gzopen(path, "rb");
	size_t bytes;

	assert_non_null(file);
	snprintf(recording.name, sizeof(recording.name), "%s", path);
	if (gzread(file, h, sizeof(*h)) != sizeof(*h) || strcmp(h->magic, RECORDED_MAGIC) ||
	    h->header_bytes != sizeof(*h) || h->snapshot_bytes != sizeof(struct recorded))
		fail_msg("%s is of another recorder: make it anew with tests/model/record.py", path);
	assert_int_equal(h->dropped, 0);
	bytes = h->count * sizeof(struct recorded);
	free(recording.snapshots);
	recording.snapshots = malloc(bytes);
	if (gzread(file, recording.snapshots, bytes) != (int)bytes)
		fail_msg("%s does not hold %u snapshots", path, h->count);
	read_truth(file);
	gzclose(file);
	memset(recording.spaces, 0, sizeof(recording.spaces));
	recording.spaces[0] = recording.snapshots[0].netns;
	for (u32 i = 0; i < h->count && !recording.spaces[1]; i++)
		if (recording.snapshots[i].netns != recording.spaces[0])
			recording.spaces[1] = recording.snapshots[i].netns;
	assert_true(recording.spaces[1]);
}

/* ---- a snapshot as a socket ---- */

static struct net *space_of(const struct recorded *r)
{
	struct net *net = replay.spaces;

	while (net < replay.spaces + SPACES && net->ns.inum && net->ns.inum != r->netns)
		net++;
	assert_true(net < replay.spaces + SPACES);
	net->ns.inum = r->netns;
	net->ipv4.sysctl_tcp_pingpong_thresh = r->thresh;
	return net;
}

static struct replayed *socket_of(const struct recorded *r)
{
	for (u32 i = 0; i < replay.n_sockets; i++)
		if (replay.sockets[i].recorded_sk == r->sk)
			return &replay.sockets[i];
	assert_true(replay.n_sockets < SOCKETS);
	replay.sockets[replay.n_sockets].recorded_sk = r->sk;
	return &replay.sockets[replay.n_sockets++];
}

static void lay_segment(struct sk_buff *skb, const struct recorded_segment *s)
{
	struct tcp_skb_cb cb = {.seq = s->seq, .end_seq = s->end_seq, .tcp_flags = s->flags, .ack_seq = s->ack};

	memset(skb, 0, sizeof(*skb));
	memcpy(skb->cb, &cb, sizeof(cb));
	skb->len = s->len;
}

static struct replayed *lay_out(const struct recorded *r)
{
	struct replayed *e = socket_of(r);
	struct tcp_sock *tp = &e->tp;
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = &icsk->icsk_inet.sk;
	struct sk_buff *queue = (void *)&sk->sk_write_queue;

	memset(tp, 0, sizeof(*tp));
#define LAY_PLAIN(type, name, field)      tp->field = r->name;
#define LAY_BITS(type, name, part, field) tp->part.field = r->name;
#define LAY_MAYBE(type, name, field, ...) tp->field = r->name;
	RECORDED_FIELDS(LAY_PLAIN, LAY_BITS, LAY_MAYBE)
	tp->nonagle = r->nonagle;
	icsk->icsk_delack_timer.function = (void *)&timer_functions[0];
	icsk->icsk_retransmit_timer.function = (void *)&timer_functions[1];
	sk->__sk_common.skc_net.net = space_of(r);
	e->metrics[0] = r->route_locked;
	e->metrics[12] = r->route_rto_min;
	e->dst._metrics = (uintptr_t)e->metrics;
	sk->sk_dst_cache = &e->dst;
	sk->sk_write_queue.next = r->head.there ? &e->head : queue;
	lay_segment(&e->head, &r->head);
	e->head.next = r->head.last ? queue : NULL;
	lay_segment(&e->skb, &r->skb);
	memcpy(e->header, r->header, sizeof(e->header));
	e->skb.data = e->header;
	return e;
}

/* ---- the programs run ---- */

static bool is_skipped(void)
{
	replay.run++;
	if (!replay.skip || (random_next(&replay.random) >> 33) % replay.skip)
		return false;
	replay.skipped++;
	return true;
}

/* Does tcp_send_ack() send this segment? Probes have old numbers. */
static bool is_lone_ack(const struct recorded *r)
{
	return !r->skb.len && r->skb.seq == r->skb.end_seq && r->skb.seq == r->snd_nxt &&
	       r->skb.flags == TCPHDR_ACK && r->rcv_nxt_argument == r->rcv_nxt;
}

static void run_program(const struct recorded *r, struct replayed *e)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	uintptr_t sk = (uintptr_t)&e->tp, skb = (uintptr_t)&e->skb;
	uintptr_t timer = (uintptr_t)(r->timer == RECORDED_DELACK_TIMER ? &icsk->icsk_delack_timer
								       : &icsk->icsk_retransmit_timer);

	switch (r->program) {
	case RECORDED_PROBE:
		if (nt_config.functions)
			RUN_PROGRAM(on_tcp_probe_functions, sk, skb);
		else
			RUN_PROGRAM(on_tcp_probe, sk, skb);
		break;
	case RECORDED_DESTROY:
		RUN_PROGRAM(on_tcp_destroy_sock, sk);
		break;
	case RECORDED_SEND_LENGTH:
		RUN_PROGRAM(on_sock_send_length, sk, (unsigned long long)r->ret);
		break;
	case RECORDED_TIMER_EXPIRE:
		RUN_PROGRAM(on_timer_expire_entry, timer);
		break;
	case RECORDED_WRITE_XMIT:
		RUN_PROGRAM(fexit_tcp_write_xmit, sk, r->mss, (unsigned long long)r->nonagle_argument,
		    (unsigned long long)r->push_one);
		break;
	case RECORDED_SENDMSG:
		RUN_PROGRAM(fexit_tcp_sendmsg_locked, sk, 0, 0, (unsigned long long)r->ret);
		break;
	case RECORDED_RESET:
	case RECORDED_TIMER_START:
	case RECORDED_SEND_DELAYED_ACK:
		break; /* no program judges by them any more */
	case RECORDED_DELACK_HANDLER:
		RUN_PROGRAM(fentry_tcp_delack_timer_handler, sk);
		break;
	case RECORDED_TRANSMIT:
		if (is_lone_ack(r))
			RUN_PROGRAM(fentry_tcp_send_ack, sk);
		break;
	case RECORDED_WRITE_WAKEUP:
		RUN_PROGRAM(fentry_tcp_write_wakeup, sk);
		break;
	default:
		fail_msg("%s: no program has the number %u", recording.name, r->program);
	}
}

static void play_snapshot(const struct recorded *r)
{
	struct replayed *e = lay_out(r);
	bool skipped = is_skipped();

	host.now_ns = r->ns;
	host.jiffies = r->jiffies;
	host.pid_tgid = r->pid_tgid;
	if (!skipped)
		run_program(r, e);
	if (r->program == RECORDED_DESTROY) {
		replay.destroys_skipped += skipped;
		e->recorded_sk = 0;
	}
}

/* ---- what they tell ---- */

static void write_end(char text[64], const u8 *address, u16 port)
{
	snprintf(text, 64, "%u.%u.%u.%u:%u", address[0], address[1], address[2], address[3], port);
}

/* The one that ended nearest of those that nobody has told of. */
static struct true_stall *true_stall_of(const struct nt_record *r, const char *sender,
					const char *receiver)
{
	struct true_stall *best = NULL;

	for (u32 i = 0; i < recording.n_stalls; i++) {
		struct true_stall *s = &recording.stalls[i];

		if (s->told || strcmp(s->sender, sender) || strcmp(s->receiver, receiver) ||
		    (s->cause == NT_CAUSE_CORK_CEILING) != (r->cause == NT_CAUSE_CORK_CEILING) ||
		    apart(s->ended_ns, r->time_ns) > recording.ends_ns)
			continue;
		if (!best || apart(s->ended_ns, r->time_ns) < apart(best->ended_ns, r->time_ns))
			best = s;
	}
	return best;
}

static void on_record(const void *record)
{
	const struct nt_record *r = record;
	const struct nt_tuple *t = r->sender.present ? &r->sender.tuple : &r->receiver.tuple;
	char local[64], remote[64];
	struct true_stall *s;
	u64 duration;

	if (r->kind != NT_RECORD_STALL)
		return;
	/* user space has the last word where the other end is here: peer_contradicts() */
	if (!r->sender.present && !nt_config.netns) {
		replay.contradicted++;
		return;
	}
	write_end(local, t->local_addr, t->local_port);
	write_end(remote, t->remote_addr, t->remote_port);
	s = r->sender.present ? true_stall_of(r, local, remote) : true_stall_of(r, remote, local);
	if (!s) {
		replay.wrong++;
		print_error("told, but no stall: cause %u, pattern %u, %s of %s and %s, ended at %llu ns\n",
			    r->cause, r->pattern, r->sender.present ? "sender's" : "receiver's", local, remote,
			    (unsigned long long)r->time_ns);
		return;
	}
	s->told = true;
	if (replay.exact && !nt_config.netns && r->cause == NT_CAUSE_NAGLE_DELAYED_ACK &&
	    (r->evidence != NT_EVIDENCE_SEEN || !r->receiver.present || r->ack.end_ns > r->hold.end_ns ||
	     r->ack.end_ns < r->hold.begin_ns)) {
		replay.wrong++;
		print_error("told without the receiver's late ACK: %s to %s, ended at %llu ns\n", s->sender,
			    s->receiver, (unsigned long long)r->time_ns);
	}
	duration = r->hold.end_ns - r->hold.begin_ns;
	if (replay.exact && r->sender.present && apart(duration, s->duration_ns) > recording.header.tick_ns) {
		replay.wrong++;
		print_error("told as %llu ns, was %llu: %s to %s, ended at %llu ns\n",
			    (unsigned long long)duration, (unsigned long long)s->duration_ns, s->sender, s->receiver,
			    (unsigned long long)s->ended_ns);
	}
}

static void all_is_told(void)
{
	for (u32 i = 0; i < recording.n_stalls; i++) {
		const struct true_stall *s = &recording.stalls[i];

		if (s->told || s->doubtful)
			continue;
		replay.wrong++;
		print_error("not told: cause %u, %s to %s, %llu ns, ended at %llu ns\n", s->cause, s->sender,
			    s->receiver, (unsigned long long)s->duration_ns, (unsigned long long)s->ended_ns);
	}
}

static void nothing_is_left(void)
{
	for (u32 i = 0; i < replay.n_sockets; i++)
		if (replay.sockets[i].recorded_sk)
			fail_msg("%s ends before its sockets", recording.name);
	programs_keep_nothing(replay.destroys_skipped);
}

/* netns: whose end alone is looked at; 0: both. */
static void play(bool direct, u32 netns, u32 skip, u64 seed)
{
	const struct nt_config config = {
		.min_ns = 1 * MS,
		.tick_ns = recording.header.tick_ns,
		.netns = netns,
		.functions = !strcmp(recording.header.family, "function"),
		.delack_by_rto_min = recording.header.delack_by_rto_min,
	};

	loads_directly = casts = direct;
	memset(&replay, 0, sizeof(replay));
	for (u32 i = 0; i < recording.n_stalls; i++)
		recording.stalls[i].told = false;
	replay.skip = skip;
	replay.exact = !skip;
	replay.random = random_begin(seed);
	programs_begin(&config, &task, on_record);
	delack_timer_function = (uintptr_t)&timer_functions[0];
	write_timer_function = (uintptr_t)&timer_functions[1];
	for (u32 i = 0; i < recording.header.count; i++)
		play_snapshot(&recording.snapshots[i]);
	if (!skip && !netns) {
		all_is_told();
		/* each late ACK is joined to its hold: none is left for the receiver to tell of */
		replay.wrong += replay.contradicted;
	}
	nothing_is_left();
	if (replay.wrong)
		fail_msg("%s: %llu times wrong; direct %d, netns %u, skip 1/%u, seed %llu", recording.name,
			 (unsigned long long)replay.wrong, direct, netns, skip, (unsigned long long)seed);
}

/* ---- the tests ---- */

static void for_each_recording(void (*what)(void))
{
	const char *directory = getenv("NAGLETRACE_RECORDINGS");
	char pattern[512];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/*.gz", directory ? directory : "tests/model/recordings");
	if (glob(pattern, 0, NULL, &found) || !found.gl_pathc)
		fail_msg("no recordings: %s", pattern);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		read_recording(found.gl_pathv[i]);
		what();
	}
	globfree(&found);
}

static void play_whole(void)
{
	for (u32 i = 0; i < 2; i++)
		play(i, 0, 0, 1);
	print_message("%s: Linux %s, %u snapshots, %u stalls\n", recording.name, recording.header.release,
		      recording.header.count, recording.n_stalls);
}

TEST(what_real_kernels_showed_is_told_as_the_wire_has_it)
{
	for_each_recording(play_whole);
}

static u32 told_now(void)
{
	u32 n = 0;

	for (u32 i = 0; i < recording.n_stalls; i++)
		n += recording.stalls[i].told;
	return n;
}

static void play_one_end(void)
{
	u32 told = 0;

	for (u32 i = 0; i < 4; i++) {
		play(i >> 1, recording.spaces[i & 1], 0, 1);
		told += told_now();
	}
	print_message("%s: %u of %u stalls told by each end alone\n", recording.name, told / 4,
		      recording.n_stalls);
	/* one end alone infers, and keeps silent in doubt */
	assert_true(!recording.n_stalls || told);
}

TEST(one_end_alone_invents_no_stall)
{
	for_each_recording(play_one_end);
}

/* So many replays with both ends, and as many with one. */
static void play_with_gaps(void)
{
	static const u32 rates[] = {20, 4, 2};
	const char *text = getenv("NAGLETRACE_MODEL_SEED");
	u64 seed = text ? strtoull(text, NULL, 0) : 1;

	for (u32 i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		u64 told = 0, skipped = 0;

		for (u32 n = 0; n < 2 * REPLAYS; n++) {
			u32 netns = n < REPLAYS ? 0 : recording.spaces[n >> 1 & 1];

			play(n & 1, netns, rates[i], 1000 * seed + n);
			skipped += replay.skipped;
			told += netns ? 0 : told_now();
		}
		assert_true(skipped);
		print_message("%s: 1 in %u skipped, %llu of %llu stalls told, none invented\n", recording.name,
			      rates[i], (unsigned long long)told,
			      (unsigned long long)REPLAYS * recording.n_stalls);
	}
}

TEST(with_programs_skipped_no_stall_is_invented)
{
	for_each_recording(play_with_gaps);
}

UNIT_MAIN()
