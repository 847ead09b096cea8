// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/each_process.c
#include <unistd.h>
#include "unit.h"
#include "base/each_process.h"

struct calls {
	int self, all;
};

static int count(void *context, pid_t pid)
{
	struct calls *calls = context;

	assert_true(pid > 0);
	calls->self += pid == getpid();
	calls->all++;
	return 0;
}

static int end_at_self(void *context, pid_t pid)
{
	struct calls *calls = context;

	assert_false(calls->self);
	count(calls, pid);
	return calls->self ? -7 : 0;
}

TEST(it_calls_for_each_process_once)
{
	struct calls calls = {};

	assert_int_equal(nt_each_process(count, &calls), 0);
	assert_int_equal(calls.self, 1);
	assert_in_range(calls.all, 2, 1 << 22); /* there is the one that started this, too */
}

TEST(a_call_ends_the_walk)
{
	struct calls calls = {};

	assert_int_equal(nt_each_process(end_at_self, &calls), -7);
	assert_int_equal(calls.self, 1);
}

UNIT_MAIN()
