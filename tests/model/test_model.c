// SPDX-License-Identifier: GPL-2.0
/*
 * The programs of bpf/, compiled for the host over shim/, against a model of TCP whose truth is
 * known by construction. NAGLETRACE_MODEL_STEPS (programs run in each test) and
 * NAGLETRACE_MODEL_SEED choose how long and which.
 */
#include "programs.h"

#include "hooks.h"
#include "model_limits.h"
#include "single_calls.h"
#include "talk.h"
#include "tcp.h"
#include "told.h"
#include "truth.h"
#include "world.h"

#define DEFAULT_STEPS 250000

static u64 from_environment(const char *name, u64 otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- runs ---- */

static void happen(const struct event *event)
{
	struct endpoint *e = event->e;

	switch (event->kind) {
	case EVENT_NOTHING:
		break;
	case EVENT_ARRIVES:
		arrives(e, event->object);
		break;
	case EVENT_TIMER: {
		struct model_timer *timer = event->object;

		if (!e->gone && timer->armed && timer->generation == event->detail)
			timer_expires(e, timer);
		break;
	}
	case EVENT_PACING:
		e->pacing_armed = false;
		if (!e->gone)
			tcp_tsq_handler(e);
		break;
	case EVENT_DEVICE:
		device_done(e, event->detail);
		break;
	case EVENT_TASKLET:
		tasklet(e);
		break;
	case EVENT_APP:
		turn(e);
		break;
	case EVENT_RELEASE:
		if (!e->gone) {
			release_sock(e);
			close_when_done(e);
		}
		break;
	case EVENT_DESTROY:
		endpoint_destroy(e);
		break;
	case EVENT_WROTE:
		in_process(e);
		if (!e->gone)
			hook_send_length(e, event->detail);
		in_process(NULL);
		break;
	case EVENT_CHAT:
		chat(e);
		break;
	case EVENT_FORGED:
		forge(e);
		break;
	case EVENT_END:
		for (int side = 0; side < 2; side++)
			if (!e->talk->end[side].gone)
				tcp_abort(&e->talk->end[side]);
		break;
	}
}

static void one_event(void)
{
	struct event event = world_next();
	struct conversation *t = event.e->talk;

	world.now_ns = host.now_ns = max_u64(world.now_ns, event.at_ns);
	host.jiffies = world_jiffies();
	if (event.life != t->life || (event.e->destroyed && event.kind != EVENT_DEVICE)) {
		if (event.kind == EVENT_ARRIVES)
			free(event.object);
		return;
	}
	hooks.e = event.e;
	happen(&event);
	check_told(event.e);
}

struct setting {
	enum family family;
	bool direct, guarded, short_run;
	u32 netns; /* whose end is looked at; 0: both */
	u32 skip;
	u32 seed;
	u64 min_ns;         /* 0: LEAST_NS; NO_LEAST: none */
	enum nt_target target;
	bool stalls_only, stacks;
	bool timeout_field, usec_stamps; /* of other kernels */
	bool ring_full, maps_refuse, scratch_full; /* now and then */
};

#define LEAST_NS MS
#define NO_LEAST (~0ULL)

static const struct setting *setting_now;

static struct nt_totals *totals_told(void)
{
	static struct nt_totals told;
	u32 zero = 0;

	told = *(struct nt_totals *)bpf_map_lookup_elem(&totals, &zero);
	told.writes = often[0].writes;
	return &told;
}

/* The programs learn the timers' functions from a socket that goes: userspace/attach/tracer.c makes one. */
static void teach_timers(void)
{
	static struct conversation none;
	u32 skip = hooks.skip;

	hooks.skip = 0;
	none.life++;
	endpoint_open(&none, 0, 1, 1, 1448);
	hook_destroy(&none.end[0]);
	hooks.skip = skip;
}

/* The same memory twice: what one view forbids, the other shows. */
static void talks_begin(bool guarded)
{
	const size_t page = 4096, bytes = (CONVERSATIONS * sizeof(*talks) + page - 1) / page * page;
	static char *view;
	int fd;

	if (!talks) {
		fd = memfd_create("sockets", 0);
		assert_true(fd >= 0 && !ftruncate(fd, bytes));
		talks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(talks != MAP_FAILED && view != MAP_FAILED);
		close(fd);
	}
	if (!guarded)
		return;
	host.guarded = (uintptr_t)talks;
	host.guarded_end = host.guarded + bytes;
	host.view = view - (char *)talks;
}

static void begin(const struct setting *setting)
{
	u64 seed = from_environment("NAGLETRACE_MODEL_SEED", 1) + 1000 * setting->seed;
	struct nt_config config = {
		.min_ns = setting->min_ns == NO_LEAST ? 0 : LEAST_NS,
		.tick_ns = world.tick_ns,
		.netns = setting->netns,
		.target = setting->target,
		.all_holds = !setting->stalls_only,
		.stacks = setting->stacks,
		.functions = setting->family != TRACEPOINT,
		.name = "client",
	};
	u32 client = tasks[0].tgid;
	u8 one = 1;

	setting_now = setting;
	loads_directly = setting->direct;
	casts = setting->direct && !setting->guarded;
	programs_begin(&config, &idle, on_record);
	pid_marks[client % NT_PID_MARKS] = one;
	bpf_map_update_elem(&pids, &client, &one, BPF_ANY);
	talks_begin(setting->guarded);
	n_told = world.n_events = 0; /* of a run that failed */
	memset(&run, 0, sizeof(run));
	memset(&truth, 0, sizeof(truth));
	truth.netns = setting->netns;
	truth.least_ns = config.min_ns;
	truth.target = setting->target != NT_TARGET_ALL;
	truth.show_missed = getenv("NAGLETRACE_MODEL_MISSED");
	memset(&hooks, 0, sizeof(hooks));
	run.family = hooks.family = setting->family;
	run.exact = setting->family != TRACEPOINT && !setting->skip && !setting->netns &&
		    !setting->ring_full && !setting->maps_refuse && !setting->scratch_full;
	run.one_end = setting->netns;
	hooks.skip = setting->skip;
	world.random = random_begin(seed);
	world.steps = 0;
	world.now_ns = host.now_ns = 1000 * SECOND;
	host.jiffies = world_jiffies();
	world_ends = false;
	world.timeout_field = setting->timeout_field;
	world.usec_stamps = setting->usec_stamps;
	if (setting->timeout_field)
		host.icsk_timeout = offsetof(struct endpoint, write_timeout);
	if (setting->usec_stamps)
		host.tcp_usec_ts = offsetof(struct endpoint, usec_stamps);
	teach_timers();
}

#include "single_rules.h" /* its tests begin, too */

static struct host_map *some_map(void)
{
	return one_in(2) ? host_sized(&hold_hash) : host_sized(&late_acks);
}

static void scratch_all_busy(bool busy)
{
	for (u32 i = 0; i < SCRATCH_LEVELS; i++)
		scratch_here()->busy[i] = busy;
}

/* An event for which there may be no room. */
static void one_tight_event(void)
{
	bool scratch = setting_now->scratch_full && one_in(10);

	if (setting_now->ring_full)
		host_ring.full = one_in(3);
	if (setting_now->maps_refuse && one_in(10))
		some_map()->refuses = one_in(3);
	if (scratch)
		scratch_all_busy(true);
	one_event();
	if (scratch)
		scratch_all_busy(false);
}

/* Plays so many programs' runs, ends all connections, and looks at what is left. */
static void play(const struct setting *setting)
{
	u64 steps = from_environment("NAGLETRACE_MODEL_STEPS", DEFAULT_STEPS);

	if (setting->short_run)
		steps /= 5;
	begin(setting);
	for (u32 i = 0; i < CONVERSATIONS; i++) {
		talks[i].number = i;
		conversation_open(&talks[i]);
	}
	while (world.steps < steps)
		one_tight_event();
	world_ends = true;
	for (u32 i = 0; i < CONVERSATIONS; i++)
		for (int side = 0; side < 2; side++)
			if (!talks[i].end[side].gone)
				tcp_abort(&talks[i].end[side]);
	while (world.n_events)
		one_tight_event();
	programs_keep_nothing(hooks.destroys_skipped);
	print_message("%llu programs run, %llu skipped; stalls %llu, clean %llu; told %llu, clean %llu, false %llu\n",
		      (unsigned long long)world.steps, (unsigned long long)hooks.skipped,
		      (unsigned long long)(truth.stalls[1] + truth.stalls[2]),
		      (unsigned long long)truth.clean, (unsigned long long)run.told,
		      (unsigned long long)run.told_clean, (unsigned long long)run.false_stalls);
}


/* Those that the audit compares with the kernel's own count. */
static u64 timers_counted(void)
{
	u64 sum = 0;

	for (int side = 0; side < 2; side++) {
		u64 id = netns_id(&spaces[side]), *seen = bpf_map_lookup_elem(&timers_seen, &id);

		sum += seen ? *seen : 0;
	}
	return sum;
}

/* What the kernel side counted, where it saw all. */
static void totals_are_exact(void)
{
	const struct nt_totals *t = totals_told();

	for (u32 reason = NT_HOLD_NAGLE; reason <= NT_HOLD_MSG_MORE; reason++) {
		assert_int_equal(t->holds[reason], truth.holds[reason]);
		assert_int_equal(t->hold_ns[reason], truth.hold_ns[reason]);
	}
	assert_int_equal(t->holds[NT_HOLD_UNKNOWN], 0);
	if (!truth.target)
		assert_int_equal(timers_counted(), truth.delayed_acks);
	assert_int_equal(t->delayed_acks, truth.delayed_acks);
	assert_int_equal(t->writes, truth.writes);
}

/* Each record is counted, in what user space shows where records are dropped; and no more. */
static void totals_are_the_records(void)
{
	const struct nt_totals *t = totals_told();
	u64 counted = 0, in_records = 0;

	for (u32 cause = NT_CAUSE_NAGLE_DELAYED_ACK; cause < NT_CAUSES; cause++) {
		counted += t->stalls[cause];
		in_records += run.stalls[cause];
	}
	if (!host_ring.refused)
		assert_int_equal(counted, in_records);
	assert_int_equal(t->holds[NT_HOLD_INVALID] + t->hold_ns[NT_HOLD_INVALID], 0);
	if (truth.least_ns || !nt_config.all_holds)
		return;
	for (u32 release = NT_RELEASE_ACK; release < NT_RELEASES; release++) {
		if (!host_ring.refused && !truth.target)
			assert_int_equal(t->releases[release], run.releases[release]);
	}
}

static void nothing_is_dropped(void)
{
	for (u32 way = 0; way < NT_DROPPED_WAYS; way++)
		assert_int_equal(totals_told()->dropped[way], 0);
}

/* ---- where not all is seen: how far what is told is from what is true, in runs of a kind together ---- */

struct share {
	u64 part, whole;
};

static struct share pool[MEASURES];

static void share_add(struct share *s, u64 part, u64 whole)
{
	s->part += part;
	s->whole += whole;
}

/* Compares the totals; totals_are_exact() asks more where functions show both ends. */
static void pool_totals(void)
{
	const struct nt_totals *t = totals_told();

	for (u32 i = NT_HOLD_NAGLE; i < NT_HOLD_UNKNOWN; i++) {
		bool certain = i <= NT_HOLD_MSG_MORE;

		share_add(&pool[certain ? HOLDS_COUNTED : OTHERS_COUNTED], apart(t->holds[i], truth.holds[i]),
			  truth.holds[i]);
		if (certain)
			share_add(&pool[HELD_FOR], apart(t->hold_ns[i], truth.hold_ns[i]), truth.hold_ns[i]);
	}
	share_add(&pool[ACKS_BY_TIMER], apart(t->delayed_acks, truth.delayed_acks), truth.delayed_acks);
}

static void pool_play(const struct setting *setting)
{
	play(setting);
	assert_int_equal(run.false_stalls, 0);
	totals_are_the_records();
	if (!setting->skip) {
		nothing_is_dropped();
		pool_totals();
	}
	assert_true(truth.clean > 10);
	assert_true(run.one_way_told >= run.one_way * 3 / 4);
	share_add(&pool[STALLS_MISSED], truth.clean - run.told_clean, truth.clean);
	if (!setting->stalls_only)
		share_add(&pool[HOLDS_MISSED], apart(truth.long_holds, run.holds_told), truth.long_holds);
	if (setting->netns)
		share_add(&pool[FELT_MISSED], truth.felt_clean - run.felt_told, truth.felt_clean);
	share_add(&pool[FELT_OTHERWISE], run.felt_unlike, run.felt_told);
	share_add(&pool[NEVER_WERE], run.holds_unknown, run.holds_told);
	share_add(&pool[CONTRADICTED], run.contradicted, truth.clean);
	for (enum part part = 0; part < PARTS; part++)
		share_add(&pool[OTHERWISE + part], run.unlike[part], run.compared);
	share_add(&pool[LOOKUPS], host.lookups, world.steps);
}

/* Compares with model_limits.h what was played since the last time; NAGLETRACE_MODEL_LIMITS shows it instead. */
static void pool_check(const struct setting *s)
{
	static const char *const families[] = {"functions", "kprobes", "tracepoints"};
	bool shown = getenv("NAGLETRACE_MODEL_LIMITS");
	struct share shares[MEASURES];
	char kind[64];

	memcpy(shares, pool, sizeof(shares));
	memset(&pool, 0, sizeof(pool));
	snprintf(kind, sizeof(kind), "%s, %s, 1 in %u skipped", families[s->family], s->netns ? "one end" : "both ends",
		 s->skip);
	if (shown)
		fprintf(stderr, "%s:\n", kind);
	for (u32 i = 0; i < MEASURES; i++) {
		const struct limit *l = &limits[i];
		double most = most_of(l, s->family == TRACEPOINT, s->netns, s->skip);
		double share = shares[i].whole ? 100.0 * shares[i].part / shares[i].whole : 0;

		if (shown)
			fprintf(stderr, "  %-22s %6.2f %% (limit %.2f)\n", l->what, share, most);
		else if (share > most)
			fail_msg("%s: %s: %llu of %llu, which is beyond %.2f %%", kind, l->what,
				 (unsigned long long)shares[i].part, (unsigned long long)shares[i].whole, most);
	}
}

/* ---- the tests ---- */

static void exactly(const struct setting *setting)
{
	pool_play(setting);
	pool_check(setting);
	totals_are_exact();
	assert_in_range(run.told, truth.stalls[1] + truth.stalls[2] + truth.stalls[3] - truth.blurred,
			truth.stalls[1] + truth.stalls[2] + truth.stalls[3]);
}

TEST(functions_tell_each_hold_as_it_was)
{
	for (int i = 0; i < 4; i++)
		exactly(&(struct setting){.family = FUNCTION, .direct = i >> 1,
					  .min_ns = i & 1 ? NO_LEAST : 0, .timeout_field = i & 1,
					  .usec_stamps = i >> 1, .stacks = i >> 1, .seed = i});
}

TEST(kprobes_tell_each_hold_as_it_was)
{
	exactly(&(struct setting){.family = KPROBE, .min_ns = NO_LEAST, .seed = 10});
}

TEST(only_stalls_are_told_where_no_more_is_asked_for)
{
	exactly(&(struct setting){.family = FUNCTION, .stalls_only = true, .seed = 11});
}

/* The totals count the sockets of who was asked for; the records say who that is. */
TEST(the_totals_are_of_who_was_asked_for)
{
	for (enum nt_target target = NT_TARGET_PIDS; target <= NT_TARGET_CGROUP; target++)
		exactly(&(struct setting){.family = FUNCTION, .target = target,
					  .min_ns = NO_LEAST, .seed = 12 + target});
}

TEST(dropped_is_what_found_no_room)
{
	const u64 *dropped;

	for (enum family family = 0; family < FAMILIES; family++) {
		play(&(struct setting){.family = family, .ring_full = true, .seed = 16 + family});
		dropped = totals_told()->dropped;
		assert_true(host_ring.refused);
		assert_int_equal(dropped[NT_DROPPED_RING_FULL], host_ring.refused);
		assert_int_equal(dropped[NT_DROPPED_HOLD_MAP] + dropped[NT_DROPPED_ACK_MAP], 0);
		assert_int_equal(run.false_stalls, 0);
		if (family != TRACEPOINT)
			totals_are_exact();
		play(&(struct setting){.family = family, .maps_refuse = true, .seed = 20 + family});
		dropped = totals_told()->dropped;
		assert_true(dropped[NT_DROPPED_HOLD_MAP] && dropped[NT_DROPPED_ACK_MAP]);
		assert_int_equal(dropped[NT_DROPPED_HOLD_MAP], host_sized(&hold_hash)->refused);
		assert_int_equal(dropped[NT_DROPPED_ACK_MAP], host_sized(&late_acks)->refused);
		assert_int_equal(dropped[NT_DROPPED_RING_FULL], 0);
		assert_int_equal(run.false_stalls, 0);
		totals_are_the_records();
	}
}

/* No level of the scratch is free: what cannot be judged is counted as dropped, and as nothing else. */
TEST(dropped_is_what_could_not_be_judged)
{
	u64 told_or_dropped = 0, were = 0;

	play(&(struct setting){.family = FUNCTION, .scratch_full = true, .stalls_only = true, .seed = 25});
	for (u32 reason = NT_HOLD_NAGLE; reason <= NT_HOLD_MSG_MORE; reason++) {
		told_or_dropped += totals_told()->holds[reason];
		were += truth.holds[reason];
	}
	assert_true(totals_told()->dropped[NT_DROPPED_HOLD_MAP]);
	/* some that are dropped waited for the congestion window */
	assert_in_range(told_or_dropped + totals_told()->dropped[NT_DROPPED_HOLD_MAP], were,
			were + truth.holds[NT_HOLD_CWND]);
	assert_int_equal(run.false_stalls, 0);
	assert_int_equal(totals_told()->delayed_acks, truth.delayed_acks);
}

/* See hook_guard(); a short run is enough to pass everywhere. */
TEST(untrusted_sockets_are_read_by_probes_only)
{
	play(&(struct setting){.family = KPROBE, .direct = true, .guarded = true, .short_run = true,
			       .seed = 26});
	play(&(struct setting){.family = TRACEPOINT, .direct = true, .guarded = true, .short_run = true,
			       .seed = 27});
	play(&(struct setting){.family = KPROBE, .direct = true, .guarded = true, .short_run = true,
			       .skip = 3, .seed = 28});
	play(&(struct setting){.family = TRACEPOINT, .direct = true, .guarded = true, .short_run = true,
			       .skip = 3, .seed = 29});
}

/* Which may be a little late, as round trips vary: latest_answer_ns(). */
TEST(an_answer_to_a_late_ack_comes_a_round_trip_after_it)
{
	begin(&(struct setting){.family = FUNCTION});
	answer_comes_within(20 * MS, 20 * MS, 30 * MS + world.tick_ns);
	answer_comes_within(20 * MS, 30 * MS, 30 * MS + world.tick_ns);
	answer_comes_within(20 * MS, 36 * MS, 36 * MS + world.tick_ns);
	answer_comes_within(20 * MS, 100 * MS, 40 * MS + world.tick_ns);
}

/*
 * By its timestamps: what it echoes left before the ACK was pending, 140 ms, or is that ACK, which
 * may have its own well before it leaves. Without them by the time, to an eighth of the round trip.
 */
TEST(what_was_sent_before_the_ack_came_is_no_answer)
{
	begin(&(struct setting){.family = FUNCTION});
	assert_true(answer_is_told(20 * MS, 20 * MS, 10 * MS, 1));
	assert_true(answer_is_told(20 * MS, 20 * MS, 20 * MS, 70));
	assert_false(answer_is_told(20 * MS, 20 * MS, 20 * MS, 71));
	assert_false(answer_is_told(20 * MS, 20 * MS, 20 * MS, 140));
	assert_true(answer_is_told(16 * MS, 16 * MS, 14 * MS, -1));
	assert_false(answer_is_told(16 * MS, 16 * MS, 14 * MS - 1, -1));
}

TEST(loss_explains_a_wait)
{
	begin(&(struct setting){.family = FUNCTION});
	assert_true(wait_is_told(NO_RECOVERY));
	assert_false(wait_is_told(RECOVERY_AT_ACK));
	assert_false(wait_is_told(RECOVERY_BEGINS));
	assert_false(wait_is_told(SENT_AGAIN));
	assert_false(wait_is_told(LOST));
	assert_false(wait_is_told(RETRANSMITTED));
	assert_true(wait_is_told(NODELAY_SINCE));
	assert_false(wait_is_told(CORK_SINCE));
}

TEST(what_began_unseen_is_told_when_its_timer_ends_it)
{
	begin(&(struct setting){.family = KPROBE});
	cork_ends_by_timer();
	cork_outlasts_a_postponed_timer();
	begin(&(struct setting){.family = TRACEPOINT});
	cork_ends_by_timer();
	cork_outlasts_a_postponed_timer();
}

TEST(a_late_ack_is_told_by_what_its_socket_keeps)
{
	begin(&(struct setting){.family = TRACEPOINT});
	assert_int_equal(ack_began(world.tick_ns, TCP_ESTABLISHED), world.tick_ns);
	/* something else has moved it */
	assert_int_equal(ack_began(world.tick_ns + 1, TCP_ESTABLISHED), world.tick_ns / 2);
	assert_int_equal(ack_began(world.tick_ns + 1, TCP_CLOSE_WAIT), world.tick_ns + 1); /* by a FIN */
	assert_true(ack_is_lone(0, 536));
	assert_false(ack_is_lone(0, 537));
	assert_false(ack_is_lone(ICSK_ACK_PUSHED2, 536));
}

TEST(what_ended_unseen_is_told_by_the_time_that_the_socket_keeps)
{
	u64 told_ns;

	begin(&(struct setting){.family = TRACEPOINT});
	told_ns = unseen_end_is_told(40 * MS, NOTHING);
	assert_in_range(told_ns, 40 * MS - world.tick_ns, 40 * MS + world.tick_ns);
	assert_true(unseen_end_is_told(140 * MS, NOTHING));
	assert_false(unseen_end_is_told(160 * MS, NOTHING)); /* a loss probe may have sent it */
	assert_false(unseen_end_is_told(0, NOTHING));
	assert_false(unseen_end_is_told(40 * MS, DATA_CAME));
	assert_false(unseen_end_is_told(40 * MS, MORE_WRITTEN));
	assert_false(unseen_end_is_told(40 * MS, CORKED));
	assert_false(unseen_end_is_told(40 * MS, SENT_ANEW));
}

/* More would cost a bulk transfer too much. */
TEST(a_large_tail_is_looked_at_once_in_a_jiffy)
{
	begin(&(struct setting){.family = TRACEPOINT});
	assert_int_equal(lookups_of_segments(100), 0);
}

TEST(a_tail_is_looked_at_when_something_may_have_changed)
{
	begin(&(struct setting){.family = FUNCTION});
	large_tail_waits_a_millisecond(1448, true);
	large_tail_waits_a_millisecond(1437, false); /* and grows to less than a segment */
	begin(&(struct setting){.family = TRACEPOINT});
	write_is_looked_at_again(50, another_cpu_acknowledges);
	write_is_looked_at_again(3000, another_cpu_sends);
}

TEST(a_segment_does_what_the_kernel_lets_it)
{
	begin(&(struct setting){.family = FUNCTION});
	fin_moves_a_hold(0, 0, 0, 0, true);
	fin_moves_a_hold(1, 0, 0, 0, false);
	fin_moves_a_hold(0, 1, 0, 0, false);
	fin_moves_a_hold(0, 0, 1, 0, false); /* it acknowledges something */
	fin_moves_a_hold(0, 0, 0, 1, false); /* data has come since the hold began */
	assert_true(late_ack_is_inferred(2 * 1448 - 1, 0, 0));
	assert_false(late_ack_is_inferred(2 * 1448, 0, 0));
	assert_true(late_ack_is_inferred(2 * 1448, 1, 19 * MS));
	assert_true(late_ack_is_inferred(100, 40, 20 * MS));
	assert_false(late_ack_is_inferred(100, 40, 20 * MS + 1));
}

TEST(timers_send_what_they_may)
{
	begin(&(struct setting){.family = FUNCTION});
	assert_true(probe_timer_releases(50, 0));
	assert_true(probe_timer_releases(1, 0));
	assert_false(probe_timer_releases(0, 0));
}

/* SECURITY.md has these numbers. */
TEST(a_share_has_so_many_records_a_second)
{
	begin(&(struct setting){.family = TRACEPOINT});
	assert_int_equal(RECORDS_BYTES / (sizeof(struct nt_record) + 8), 3196);
	for (int second = 0; second < 3; second++) {
		for (int i = 0; i < 99; i++)
			assert_false(share_is_used_up(7));
		assert_true(share_is_used_up(7));
		assert_false(share_is_used_up(8 + second));
		world_delay(SECOND - 1);
		assert_true(share_is_used_up(7));
		world_delay(1);
	}
}

static void call_enters(u64 sp, u32 sk)
{
	struct pt_regs regs = {0};

	PT_REGS_SP(&regs) = sp;
	call_entered(&regs, (void *)(uintptr_t)sk, 0, 0, 0, 0);
}

/* Returns the socket of the call that is found as one returns there; 0: none is. */
static u32 call_returns(u64 sp)
{
	struct pt_regs regs = {0};
	struct call call;

	PT_REGS_SP(&regs) = sp + 8;
	return call_returned(&regs, &call) ? (uintptr_t)call.sk : 0;
}

/* Calls are entered from one of n stack pointers on, and return. Returns how many are found then. */
static u32 calls_found(const u64 *sp, u32 n, u32 first, u32 calls)
{
	u32 found = 0, sk;

	for (u32 i = first; i < first + calls; i++)
		call_enters(sp[i % n], i + 1);
	for (u32 i = first; i < first + calls; i++) {
		sk = call_returns(sp[i % n]);
		if (!sk)
			continue;
		assert_int_equal(sk, i + 1);
		found++;
	}
	return found;
}

TEST(calls_that_share_a_set_are_found_as_they_return)
{
	u64 sp[CALLS_IN_SET + 1], from = 1ULL << 40;
	u32 n = 0;

	begin(&(struct setting){.family = KPROBE});
	for (u64 at = from; n <= CALLS_IN_SET; at += 16384)
		if (call_set_of(at) == call_set_of(from))
			sp[n++] = at;
	for (u32 first = 0; first < 2 * n; first++)
		assert_int_equal(calls_found(sp, n, first, CALLS_IN_SET), CALLS_IN_SET);
	assert_int_equal(totals_told()->dropped[NT_DROPPED_RETURN], 0);
	assert_int_equal(calls_found(sp, n, 0, n), CALLS_IN_SET);
	assert_int_equal(totals_told()->dropped[NT_DROPPED_RETURN], 1);
	/* a call whose return went unseen has its entry taken by the next at its place */
	call_enters(sp[0], 1);
	call_enters(sp[1], 2);
	assert_int_equal(call_returns(sp[0]), 1);
	call_enters(sp[1], 3);
	assert_int_equal(call_returns(sp[1]), 3);
	assert_int_equal(call_returns(sp[1]), 0);
}

TEST(tracepoints_tell_each_stall)
{
	struct setting s = {.family = TRACEPOINT};

	for (int i = 0; i < 4; i++) {
		s.timeout_field = i & 1;
		s.direct = s.usec_stamps = i >> 1;
		s.min_ns = i & 1 ? NO_LEAST : 0;
		s.seed = 30 + i;
		pool_play(&s);
	}
	pool_check(&s);
}

TEST(one_end_alone_accuses_nobody_falsely)
{
	for (enum family family = 0; family < FAMILIES; family++) {
		struct setting s = {.family = family, .seed = 40 + 2 * family};

		for (s.netns = CLIENT_SPACE; s.netns <= SERVER_SPACE; s.netns++, s.seed++) {
			s.usec_stamps = s.netns == CLIENT_SPACE;
			pool_play(&s);
		}
		pool_check(&s);
	}
}

TEST(programs_that_are_skipped_accuse_nobody)
{
	const u32 rates[] = {200, 20, 4, 2};

	for (u32 i = 0; i < 4; i++) {
		for (enum family family = 0; family < FAMILIES; family++) {
			struct setting s = {.family = family, .skip = rates[i], .seed = 100 + 16 * family + i};

			pool_play(&s);
			pool_check(&s);
			for (s.netns = CLIENT_SPACE; s.netns <= SERVER_SPACE; s.netns++) {
				s.seed += 4;
				pool_play(&s);
			}
			pool_check(&s);
		}
	}
}

int main(int argc, char **argv)
{
	const char *trace = getenv("NAGLETRACE_MODEL_TRACE");
	unsigned long long from, to;

	if (trace && sscanf(trace, "%llu-%llu", &from, &to) == 2) {
		trace_from_ns = from * US;
		trace_to_ns = to * US;
	}
	cmocka_set_test_filter(getenv("NAGLETRACE_MODEL_TEST"));
	setvbuf(stdout, NULL, _IOLBF, 0);
	return unit_main(argc, argv, NULL, NULL, NULL, NULL);
}
