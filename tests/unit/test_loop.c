// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/loop.c userspace/base/streams.c userspace/base/log.c
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "unit.h"
#include "base/loop.h"

#define A_WHILE (30 * NT_SECOND_NS) /* no test waits for so long */

/* ---- who is called, in which order ---- */

static struct called {
	struct nt_loop *loop;
	char names[128];
	uint32_t what;
	int forgets; /* what a call forgets, -1: nothing */
	int timer;   /* what a call switches off, -1: nothing */
	bool stops;
} called;

/* Has a name of one character as its context. */
static void note(void *context, uint32_t what)
{
	size_t n = strlen(called.names);

	assert_true(n < sizeof(called.names) - 1);
	called.names[n] = *(const char *)context;
	called.what = what;
	if (called.forgets >= 0)
		nt_loop_forget(called.loop, called.forgets);
	if (called.timer >= 0)
		assert_int_equal(nt_timer_set(called.timer, NT_NEVER, 0), 0);
	if (called.stops)
		nt_loop_stop(called.loop);
}

static int set_up(void **state)
{
	called = (struct called){.loop = nt_loop_new(), .forgets = -1, .timer = -1};
	assert_non_null(called.loop);
	return 0;
}

static int tear_down(void **state)
{
	nt_loop_free(called.loop);
	return 0;
}

/* Makes one turn, which does not wait; returns the names of those called. */
static const char *turn(void)
{
	memset(called.names, 0, sizeof(called.names));
	assert_int_equal(nt_loop_turn(called.loop, 0), 0);
	return called.names;
}

static void pipe_of(int ends[2])
{
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
}

static void write_to(int fd)
{
	assert_int_equal(write(fd, "x", 1), 1);
}

static void close_both(const int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

static void sleep_until(uint64_t at_ns)
{
	const struct timespec at = {.tv_sec = at_ns / NT_SECOND_NS,
				    .tv_nsec = at_ns % NT_SECOND_NS};

	assert_int_equal(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL), 0);
}

/* ---- descriptors ---- */

TEST(those_that_are_ready_are_called_in_the_order_in_which_they_were_added)
{
	int first[2], second[2], third[2];

	pipe_of(first);
	pipe_of(second);
	pipe_of(third);
	assert_int_equal(nt_loop_watch(called.loop, third[0], EPOLLIN, note, "a"), 0);
	assert_int_equal(nt_loop_watch(called.loop, first[0], EPOLLIN, note, "b"), 0);
	assert_int_equal(nt_loop_watch(called.loop, second[0], EPOLLIN, note, "c"), 0);
	assert_string_equal(turn(), "");
	write_to(second[1]);
	assert_string_equal(turn(), "c");
	assert_int_equal(called.what, EPOLLIN);
	write_to(first[1]);
	write_to(third[1]);
	for (int i = 0; i < 3; i++)
		assert_string_equal(turn(), "abc");
	close_both(first);
	close_both(second);
	close_both(third);
}

TEST(many_that_are_always_ready_all_have_their_turn)
{
	enum {
		MANY = 48
	};
	char all[MANY];
	int ends[MANY][2];

	for (int i = 0; i < MANY; i++) {
		all[i] = '0' + i;
		pipe_of(ends[i]);
		write_to(ends[i][1]);
		assert_int_equal(nt_loop_watch(called.loop, ends[i][0], EPOLLIN, note, &all[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(nt_loop_turn(called.loop, 0), 0);
	for (int i = 0; i < MANY; i++) {
		assert_non_null(strchr(called.names, '0' + i));
		close_both(ends[i]);
	}
}

TEST(who_is_forgotten_is_called_no_more_even_in_the_same_turn)
{
	int first[2], second[2], again;

	pipe_of(first);
	pipe_of(second);
	write_to(first[1]);
	write_to(second[1]);
	assert_int_equal(nt_loop_watch(called.loop, first[0], EPOLLIN, note, "a"), 0);
	assert_int_equal(nt_loop_watch(called.loop, second[0], EPOLLIN, note, "b"), 0);
	assert_int_equal(nt_loop_watch(called.loop, second[0], EPOLLIN, note, "c"), -EEXIST);
	called.forgets = second[0];
	assert_string_equal(turn(), "a");
	called.forgets = first[0]; /* the one that is called forgets itself */
	assert_string_equal(turn(), "a");
	assert_string_equal(turn(), "");
	nt_loop_forget(called.loop, first[0]); /* once more does no harm */

	/* its number may be another's, which is watched by itself */
	again = dup2(second[0], first[0]);
	assert_int_equal(again, first[0]);
	called.forgets = -1;
	assert_int_equal(nt_loop_watch(called.loop, again, EPOLLIN, note, "c"), 0);
	assert_string_equal(turn(), "c");
	close_both(first);
	close_both(second);
}

TEST(the_end_of_a_reader_shows_at_the_writer)
{
	int ends[2];

	pipe_of(ends);
	assert_int_equal(nt_loop_watch(called.loop, ends[1], 0, note, "a"), 0);
	assert_string_equal(turn(), "");
	close(ends[0]);
	assert_string_equal(turn(), "a");
	assert_true(called.what & EPOLLERR);
	close(ends[1]);
}

TEST(nobody_waits_for_a_file)
{
	FILE *file = tmpfile();

	assert_non_null(file);
	assert_int_equal(nt_loop_watch(called.loop, fileno(file), 0, note, NULL), -EPERM);
	assert_int_equal(nt_loop_watch(called.loop, 9999, 0, note, NULL), -EBADF);
	fclose(file);
}

/* ---- times ---- */

TEST(a_timer_calls_once_or_again_and_again)
{
	uint64_t now_ns = nt_now_ns();
	int once, each;

	once = nt_loop_timer(called.loop, 0, 0, note, "a");
	each = nt_loop_timer(called.loop, now_ns, MS, note, "b");
	assert_true(once >= 0 && each >= 0);
	sleep_until(now_ns + 20 * MS);
	/* one call makes up for all that the loop has missed */
	assert_string_equal(turn(), "ab");
	assert_true(called.what >= 21);
	sleep_until(nt_now_ns() + MS);
	assert_string_equal(turn(), "b");
	assert_int_equal(nt_timer_set(each, nt_now_ns() + A_WHILE, MS), 0);
	assert_int_equal(nt_timer_set(once, nt_now_ns(), 0), 0);
	assert_string_equal(turn(), "a");
	assert_string_equal(turn(), "");
}

TEST(a_timer_that_a_call_of_the_same_turn_sets_does_not_call_for_its_old_time)
{
	int timer;

	assert_true(nt_loop_timer(called.loop, 0, 0, note, "a") >= 0);
	timer = nt_loop_timer(called.loop, 0, MS, note, "b");
	called.timer = timer;
	assert_string_equal(turn(), "a");
	assert_string_equal(turn(), "");
}

TEST(a_turn_ends_at_its_time_and_the_next_one_knows_its_own)
{
	uint64_t began_ns = nt_now_ns(), until_ns = began_ns + 5 * MS + 1;

	assert_int_equal(nt_loop_turn(called.loop, until_ns), 0);
	assert_true(nt_now_ns() >= until_ns);
	assert_int_equal(nt_loop_turn(called.loop, until_ns), 0); /* it is past: this one too */
	assert_int_equal(nt_loop_turn(called.loop, began_ns), 0);

	/* the old time does not end these: each waits for the timer, and calls */
	for (int i = 0; i < 2; i++) {
		assert_true(nt_loop_timer(called.loop, nt_now_ns() + 5 * MS, 0, note, "a") >= 0);
		assert_int_equal(nt_loop_turn(called.loop, i ? nt_now_ns() + A_WHILE : NT_NEVER),
				 0);
		assert_int_equal(strlen(called.names), i + 1);
	}
}

/* ---- signals ---- */

/* One that the C library keeps for itself, and leaves out of its sets. */
#define KEPT_SIGNAL 33

TEST(signals_call_with_their_numbers)
{
	uint64_t set = NT_SIGNAL(SIGUSR1) | NT_SIGNAL(KEPT_SIGNAL);

	assert_true(!nt_loop_signals(called.loop, set, 0, note, "a"));
	assert_string_equal(turn(), "");
	raise(SIGUSR1);
	raise(SIGUSR1); /* the kernel keeps one of them */
	assert_string_equal(turn(), "a");
	assert_int_equal(called.what, SIGUSR1);
	assert_int_equal(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), KEPT_SIGNAL), 0);
	raise(SIGUSR1);
	assert_string_equal(turn(), "aa");
	assert_int_equal(called.what, KEPT_SIGNAL);
}

/* ---- the end ---- */

TEST(stopped_it_calls_nobody_else)
{
	int ends[2];

	pipe_of(ends);
	write_to(ends[1]);
	assert_true(nt_loop_timer(called.loop, 0, 0, note, "a") >= 0);
	assert_int_equal(nt_loop_watch(called.loop, ends[0], EPOLLIN, note, "b"), 0);
	called.stops = true;
	assert_false(nt_loop_stopped(called.loop));
	assert_int_equal(nt_loop_run(called.loop), 0);
	assert_true(nt_loop_stopped(called.loop));
	assert_string_equal(called.names, "a");
	assert_int_equal(nt_loop_run(called.loop), 0);
	assert_string_equal(called.names, "a");
	close_both(ends);
}

/* ---- a loop in a loop ---- */

TEST(another_loop_sees_when_it_has_something_to_call)
{
	struct pollfd fd = {.fd = nt_loop_fd(called.loop), .events = POLLIN};

	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_true(nt_loop_timer(called.loop, nt_now_ns() + 5 * MS, 0, note, "a") >= 0);
	assert_int_equal(poll(&fd, 1, A_WHILE / MS), 1);
	assert_string_equal(turn(), "a");
	assert_int_equal(poll(&fd, 1, 0), 0);
}

UNIT_MAIN_WITH(set_up, tear_down)
