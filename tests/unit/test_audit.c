// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/audit.c
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "attach/tracer.h"
#include "capture/audit.h"
#include "base/clock.h"
#include "capture/namespaces.h"

/* ---- namespaces as these tests want them, in the place of userspace/capture/namespaces.c ---- */

struct fake {
	uint64_t id;
	uint32_t inum;
	bool lived_in;
	struct nt_timers timers;
};

static struct {
	struct fake list[10000];
	size_t count;
	bool complete, refused, overflowed;
	unsigned int scans, reads, disturbed; /* so many readings are */
	uint64_t forgotten, counted; /* of these one; the programs count this one; 0: none */
	unsigned int slow_ms;        /* a reading takes this long */
} kernel;

int nt_namespaces_open(struct nt_namespaces *ns, const struct nt_tracer *tracer)
{
	memset(ns, 0, sizeof(*ns));
	ns->tracer = tracer;
	if (kernel.refused)
		return -1;
	ns->list = calloc(10000, sizeof(*ns->list));
	return 0;
}

void nt_namespaces_close(struct nt_namespaces *ns)
{
	free(ns->list);
}

int nt_namespaces_scan(struct nt_namespaces *ns)
{
	kernel.scans++;
	ns->count = kernel.count;
	ns->complete = kernel.complete;
	ns->counted[0] = kernel.counted;
	ns->n_counted = kernel.counted != 0;
	for (size_t i = 0; i < kernel.count; i++)
		ns->list[i] = (struct nt_netns){.id = kernel.list[i].id,
						.inum = kernel.list[i].inum,
						.tid = kernel.list[i].lived_in};
	return 0;
}

bool nt_namespaces_read(struct nt_namespaces *ns, uint64_t id, struct nt_timers *timers)
{
	kernel.reads++;
	for (uint64_t until = nt_now_ns() + kernel.slow_ms * MS; nt_now_ns() < until;)
		;
	/* most have the place of their number */
	for (size_t i = id <= kernel.count && kernel.list[id - 1].id == id ? id - 1 : 0;
	     i < kernel.count; i++) {
		if (kernel.list[i].id != id)
			continue;
		*timers = kernel.list[i].timers;
		if (kernel.disturbed && kernel.disturbed--)
			timers->seen++;
		return kernel.list[i].lived_in;
	}
	return false;
}

bool nt_namespaces_overflowed(const struct nt_namespaces *ns)
{
	return kernel.overflowed;
}

void nt_namespaces_forget(struct nt_namespaces *ns, uint64_t id)
{
	kernel.forgotten = id;
}

static struct fake *space(uint64_t id, uint32_t inum, uint64_t counted, uint64_t seen)
{
	struct fake *fake = &kernel.list[kernel.count++];

	*fake = (struct fake){
		.id = id,
		.inum = inum,
		.lived_in = true,
		.timers = {.counted = counted,
			   .seen_before = seen,
			   .seen = seen,
			   .file = 1000 + id},
	};
	return fake;
}

/* So many timers expire, and some of them are seen. */
static void expire(struct fake *fake, uint64_t timers, uint64_t seen)
{
	fake->timers.counted += timers;
	fake->timers.seen += seen;
	fake->timers.seen_before += seen;
}

static struct nt_audit *audit;

/* Returns when it had begun. */
static uint64_t begin(const struct nt_settings *settings)
{
	static const struct nt_tracer tracer;
	static const struct nt_settings none;

	audit = nt_audit_new(&tracer, settings ? settings : &none);
	return nt_now_ns();
}

static int set_up(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.complete = true;
	audit = NULL;
	return 0;
}

static int tear_down(void **state)
{
	nt_audit_free(audit);
	return 0;
}

static uint64_t unseen(struct nt_audit *audit)
{
	uint64_t n = 12345;

	nt_audit_read(audit, true);
	assert_true(nt_audit_unseen(audit, &n));
	return n;
}

static bool excuses(struct nt_audit *audit, uint32_t inum, uint64_t begin_ns)
{
	return nt_audit_excuses(audit, inum, begin_ns, nt_now_ns());
}

/* ---- what is counted ---- */

TEST(what_was_before_does_not_count)
{
	struct fake *host = space(1, 100, 5000, 0);

	begin(NULL);
	assert_int_equal(unseen(audit), 0);
	expire(host, 10, 10);
	assert_int_equal(unseen(audit), 0);
	expire(host, 10, 7);
	assert_int_equal(unseen(audit), 3);
}

TEST(a_timer_that_expires_while_the_first_reading_is_made_is_not_unseen)
{
	struct fake *host = space(1, 100, 50, 20);

	host->timers.seen = 22; /* two programs ran between the looks at them */
	host->timers.counted++; /* and of one of them the handler */
	begin(NULL);
	host->timers.seen_before = 22;
	host->timers.counted++;
	assert_int_equal(unseen(audit), 0);
}

TEST(it_never_goes_down)
{
	struct fake *host = space(1, 100, 0, 0);

	begin(NULL);
	expire(host, 5, 3);
	assert_int_equal(unseen(audit), 2);
	expire(host, 0, 1); /* its handler is about to run */
	assert_int_equal(unseen(audit), 2);
	expire(host, 1, 0);
	assert_int_equal(unseen(audit), 2);
	expire(host, 1, 0);
	assert_int_equal(unseen(audit), 3);
}

TEST(a_namespace_that_appears_later_began_at_zero)
{
	space(1, 100, 7, 7);
	begin(NULL);
	space(2, 101, 9, 5);
	assert_int_equal(unseen(audit), 4);
}

TEST(where_some_are_not_listed_one_that_appears_later_may_be_old)
{
	struct fake *late;

	kernel.complete = false;
	space(1, 100, 7, 7);
	begin(NULL);
	late = space(2, 101, 9, 5);
	assert_int_equal(unseen(audit), 0);
	expire(late, 2, 1);
	assert_int_equal(unseen(audit), 1);
}

TEST(one_in_which_somebody_lives_later_was_there_before)
{
	struct fake *empty;

	space(1, 100, 7, 7);
	empty = space(2, 101, 900, 0);
	empty->lived_in = false;
	begin(NULL);
	assert_int_equal(unseen(audit), 0);
	empty->lived_in = true;
	assert_int_equal(unseen(audit), 0);
	expire(empty, 1, 0);
	assert_int_equal(unseen(audit), 1);
}

TEST(one_in_which_nobody_lives_excuses_without_a_scan_for_each_stall)
{
	unsigned int scans;

	space(1, 100, 7, 7);
	space(2, 101, 900, 0)->lived_in = false;
	kernel.slow_ms = 10; /* so that what was read stays valid for longer than this test takes */
	begin(NULL);
	assert_true(excuses(audit, 101, 0));
	scans = kernel.scans;
	for (int i = 0; i < 5; i++)
		assert_true(excuses(audit, 101, 0));
	assert_int_equal(kernel.scans, scans);
}

TEST(what_was_unseen_in_a_namespace_that_is_gone_stays_counted)
{
	struct fake *lab;

	space(1, 100, 0, 0);
	begin(NULL);
	lab = space(2, 101, 8, 5);
	assert_int_equal(unseen(audit), 3);
	kernel.count--;
	assert_int_equal(unseen(audit), 3);
	assert_int_equal(kernel.forgotten, 2);
	/* its number is given to another one */
	lab = space(3, 101, 4, 4);
	assert_int_equal(unseen(audit), 3);
	expire(lab, 1, 0);
	assert_int_equal(unseen(audit), 4);
}

TEST(what_is_counted_of_one_that_no_look_listed_is_forgotten)
{
	space(1, 100, 0, 0);
	begin(NULL);
	kernel.complete = false; /* on a host with very many they never are */
	kernel.counted = 1;
	unseen(audit);
	assert_int_equal(kernel.forgotten, 0);
	kernel.counted = 2;
	unseen(audit);
	assert_int_equal(kernel.forgotten, 2);
}

TEST(one_that_is_not_listed_is_not_gone_where_the_list_is_incomplete)
{
	struct fake *lab;

	kernel.complete = false;
	space(1, 100, 0, 0);
	lab = space(2, 101, 8, 5);
	begin(NULL);
	kernel.count--;
	assert_int_equal(unseen(audit), 0);
	kernel.count++;
	assert_int_equal(kernel.forgotten, 0);
	expire(lab, 2, 1);
	assert_int_equal(unseen(audit), 1);
}

TEST(a_process_that_went_elsewhere_is_not_taken_for_its_old_namespace)
{
	struct fake *host = space(1, 100, 3, 3), *other = space(2, 101, 500, 500);
	struct nt_timers own = host->timers;

	begin(NULL);
	host->timers = other->timers;
	host->timers.seen = host->timers.seen_before = own.seen;
	assert_int_equal(unseen(audit), 0);
	host->timers = own;
	expire(host, 1, 0);
	assert_int_equal(unseen(audit), 1);
}

TEST(only_the_namespace_asked_for_is_compared)
{
	const struct nt_settings settings = {.netns = 101};
	struct fake *host = space(1, 100, 0, 0), *lab = space(2, 101, 0, 0);

	begin(&settings);
	expire(host, 5, 0);
	expire(lab, 2, 0);
	assert_int_equal(unseen(audit), 2);
}

/* ---- what is not known ---- */

TEST(a_reading_of_many_takes_no_longer_than_it_may)
{
	unsigned int reads;
	uint64_t n, then;

	for (uint64_t i = 1; i <= 50; i++)
		space(i, i, 0, 0);
	begin(NULL);
	kernel.slow_ms = 10;
	reads = kernel.reads;
	then = nt_now_ns();
	nt_audit_read(audit, true);
	assert_in_range(kernel.reads - reads, 1, 21); /* in 200 ms, unless others took the CPU */
	assert_false(nt_audit_whole(audit, then, then));
	kernel.slow_ms = 0;
	expire(&kernel.list[49], 3, 1);
	then = nt_now_ns();
	nt_audit_read(audit, true);
	assert_true(nt_audit_whole(audit, then, then));
	assert_false(nt_audit_whole(audit, then, nt_now_ns()));
	/* in one of them nobody lives any more, and one ends: it may have taken timers with it */
	kernel.list[0].lived_in = false;
	then = nt_now_ns();
	nt_audit_read(audit, true);
	assert_true(nt_audit_whole(audit, then, then));
	kernel.list[0] = kernel.list[--kernel.count];
	nt_audit_read(audit, true);
	assert_false(nt_audit_whole(audit, then, then));
	then = nt_now_ns();
	nt_audit_read(audit, true);
	assert_true(nt_audit_whole(audit, then, then));
	assert_true(nt_audit_unseen(audit, &n));
	assert_int_equal(n, 2);
}

TEST(of_more_namespaces_than_there_is_room_for_the_last_are_not_known)
{
	unsigned int scans;
	struct fake *last;
	uint64_t n;

	for (uint64_t i = 1; i <= 4096; i++)
		space(i, i, 0, 0);
	begin(NULL);
	assert_int_equal(unseen(audit), 0);
	last = space(4097, 4097, 7, 5);
	nt_audit_read(audit, true);
	assert_false(nt_audit_unseen(audit, &n));
	assert_true(excuses(audit, 4097, 0));
	scans = kernel.scans;
	assert_true(excuses(audit, 4097, 0));
	assert_int_equal(kernel.scans, scans); /* of so many stalls none costs a scan */
	assert_false(excuses(audit, 4096, 0)); /* the others are known as ever */
	/* one is gone; in its place comes one that has counted already, and excuses what was before
	 */
	kernel.list[0] = *last;
	kernel.count--;
	for (unsigned int reads = kernel.reads; kernel.reads < reads + 2 * 4096;)
		nt_audit_read(audit, true); /* as often as it takes until each is read */
	assert_int_equal(unseen(audit), 0);
	assert_true(excuses(audit, 4097, 0));
	assert_int_equal(unseen(audit), 1);
	expire(&kernel.list[0], 2, 1);
	assert_int_equal(unseen(audit), 2);
}

TEST(by_function_hooks_a_filter_that_hides_sockets_leaves_nothing_to_compare)
{
	static const struct nt_tracer tracepoints = {.hooks.family = NT_HOOKS_TRACEPOINT},
				      functions = {.hooks.family = NT_HOOKS_FUNCTION};
	static const struct nt_settings filters[] = {
		{.ports.count = 1}, {.local_ports.count = 1}, {.remote_ports.count = 1},
		{.only_v4 = true},  {.only_v6 = true},
	};

	space(1, 100, 0, 0);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		struct nt_audit *one = nt_audit_new(&tracepoints, &filters[i]);

		assert_int_equal(unseen(one), 0);
		nt_audit_free(one);
		assert_null(nt_audit_new(&functions, &filters[i]));
	}
}

TEST(what_cannot_be_known_is_not_said)
{
	struct fake *host;
	uint64_t n;

	kernel.refused = true;
	begin(NULL);
	assert_null(audit);
	assert_false(nt_audit_unseen(NULL, &n));
	nt_audit_read(NULL, true);
	nt_audit_stop(NULL);
	assert_true(nt_audit_excuses(NULL, 100, 0, 1));
	nt_audit_free(NULL);

	kernel.refused = false;
	host = space(1, 100, 0, 0);
	host->lived_in = false;
	begin(NULL);
	assert_false(nt_audit_unseen(audit, &n));
	host->lived_in = true;
	assert_int_equal(unseen(audit), 0);
	expire(host, 3, 0);
	kernel.overflowed = true;
	nt_audit_read(audit, true);
	assert_false(nt_audit_unseen(audit, &n));
	assert_true(excuses(audit, 100, 0));
}

TEST(when_the_hooks_are_gone_nothing_more_is_unseen)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t released_ns = begin(NULL);

	expire(host, 3, 2);
	assert_int_equal(unseen(audit), 1);
	nt_audit_stop(audit);
	expire(host, 100, 0);
	assert_int_equal(unseen(audit), 1);
	assert_true(nt_audit_excuses(audit, 100, 0, released_ns));
	assert_false(nt_audit_excuses(audit, 100, 0, released_ns));
	assert_true(excuses(audit, 100, 0)); /* nobody has read it since */
}

TEST(what_expires_in_standby_is_not_unseen_and_what_was_stays)
{
	struct fake *old = space(1, 11, 100, 90), *young;

	begin(NULL);
	expire(old, 10, 7);
	assert_int_equal(unseen(audit), 3);
	expire(old, 2, 1); /* since the last reading */
	nt_audit_pause(audit);
	expire(old, 50, 0);
	young = space(2, 22, 30, 0); /* it came meanwhile, and has counted */
	assert_int_equal(unseen(audit), 4);
	nt_audit_resume(audit);
	assert_int_equal(unseen(audit), 4);
	expire(old, 5, 5);
	expire(young, 5, 4);
	assert_int_equal(unseen(audit), 5);
	nt_audit_pause(audit);
	expire(young, 9, 0);
	nt_audit_resume(audit);
	expire(old, 1, 0);
	assert_int_equal(unseen(audit), 6);
	nt_audit_pause(NULL);
	nt_audit_resume(NULL);
}

TEST(a_reading_of_a_moment_ago_will_do)
{
	unsigned int scans;

	space(1, 100, 0, 0);
	begin(NULL);
	nt_audit_read(audit, true);
	scans = kernel.scans;
	nt_audit_read(audit, false);
	assert_int_equal(kernel.scans, scans);
	nt_audit_read(audit, true);
	assert_int_equal(kernel.scans, scans + 1);
}

/* ---- what it excuses ---- */

TEST(each_unseen_timer_excuses_once)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t held_ns = begin(NULL);

	assert_false(excuses(audit, 100, held_ns));
	expire(host, 3, 1);
	assert_true(excuses(audit, 100, held_ns));
	assert_true(excuses(audit, 100, held_ns));
	assert_false(excuses(audit, 100, held_ns));
	assert_int_equal(unseen(audit), 2);
}

TEST(it_excuses_in_its_own_namespace_only)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t held_ns = nt_now_ns();

	space(2, 101, 0, 0);
	begin(NULL);
	expire(host, 1, 0);
	assert_false(excuses(audit, 101, held_ns));
	assert_true(excuses(audit, 102, held_ns)); /* nobody knows it */
	assert_true(excuses(audit, 100, held_ns));
}

TEST(a_timer_that_was_known_before_the_hold_began_excuses_nothing)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t held_ns;

	begin(NULL);
	expire(host, 5, 0);
	assert_int_equal(unseen(audit), 5);
	held_ns = nt_now_ns() + 1;
	while (nt_now_ns() <= held_ns)
		;
	assert_false(excuses(audit, 100, held_ns));
	expire(host, 1, 0);
	assert_true(excuses(audit, 100, held_ns));
	assert_false(excuses(audit, 100, held_ns));
}

TEST(a_timer_that_expired_after_the_hold_ended_excuses_nothing)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t held_ns = begin(NULL), released_ns = held_ns + 1;

	while (nt_now_ns() <= released_ns)
		;
	assert_int_equal(unseen(audit), 0); /* a reading between the two */
	expire(host, 1, 0);
	assert_int_equal(unseen(audit), 1);
	assert_false(nt_audit_excuses(audit, 100, held_ns, released_ns));
}

/* A timer that is seen while the counters are read hides one that was not. */
TEST(a_reading_that_a_timer_disturbs_is_made_again)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t held_ns = begin(NULL);

	expire(host, 2, 1);
	kernel.disturbed = 1;
	assert_true(excuses(audit, 100, held_ns));
	assert_false(excuses(audit, 100, held_ns));
}

TEST(a_namespace_of_which_nothing_was_known_is_looked_for)
{
	uint64_t held_ns;

	space(1, 100, 0, 0);
	held_ns = begin(NULL);
	space(2, 101, 1, 0);
	assert_true(excuses(audit, 101, held_ns));
	assert_false(excuses(audit, 101, held_ns));
}

TEST(what_was_hidden_before_anybody_could_read_excuses_too)
{
	struct fake *empty;
	uint64_t held_ns;

	empty = space(2, 101, 900, 0);
	empty->lived_in = false;
	held_ns = begin(NULL);
	expire(empty, 2, 0);
	assert_true(excuses(audit, 101, held_ns)); /* nobody can read it yet */
	empty->lived_in = true;
	assert_true(excuses(audit, 101, held_ns));
	assert_true(excuses(audit, 101, held_ns));
	assert_int_equal(unseen(audit), 2);
	assert_false(excuses(audit, 101, nt_now_ns()));
	expire(empty, 1, 0);
	assert_int_equal(unseen(audit), 3);
}

TEST(judgements_of_the_same_moment_share_a_reading)
{
	struct fake *host = space(1, 100, 0, 0);
	uint64_t released_ns = begin(NULL);
	unsigned int reads;

	expire(host, 8, 4);
	assert_true(nt_audit_excuses(audit, 100, 0, released_ns));
	reads = kernel.reads;
	for (int i = 0; i < 3; i++)
		assert_true(nt_audit_excuses(audit, 100, 0, released_ns));
	assert_false(nt_audit_excuses(audit, 100, 0, released_ns));
	assert_int_equal(kernel.reads, reads);
}

/* However many there were, no more is kept than has room. */
TEST(very_old_unseen_timers_excuse_nothing_any_more)
{
	struct fake *host = space(1, 100, 0, 0);
	unsigned int excused = 0;

	begin(NULL);
	for (int i = 0; i < 100; i++) {
		expire(host, 1, 0);
		assert_int_equal(unseen(audit), i + 1);
	}
	while (excused < 200 && excuses(audit, 100, 0))
		excused++;
	assert_int_equal(excused, 32);
}

UNIT_MAIN_WITH(set_up, tear_down)
