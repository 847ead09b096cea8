// SPDX-License-Identifier: GPL-2.0
// links: userspace/attach/iterator.c userspace/capture/namespaces.c userspace/base/each_process.c
#include "unit.h"
#include "capture/namespaces.h"

static void expect(const char *text, bool found, uint64_t value)
{
	uint64_t got = 4711;

	assert_int_equal(nt_namespaces_parse(text, &got), found);
	if (found)
		assert_int_equal(got, value);
}

static void the_counter_is_found_by_its_name(void **state)
{
	expect("TcpExt: SyncookiesSent DelayedACKs DelayedACKLocked\n"
	       "TcpExt: 0 42 7\n"
	       "IpExt: InNoRoutes\nIpExt: 3\n",
	       true, 42);
	expect("IpExt: DelayedACKs\nIpExt: 3\nTcpExt: DelayedACKs\nTcpExt: 18446744073709551615\n",
	       true, UINT64_MAX);
	expect("TcpExt: DelayedACKLocked DelayedACKs\nTcpExt: 1 2", true, 2);
}

static void what_is_no_such_counter_is_not_taken_for_it(void **state)
{
	expect("", false, 0);
	expect("TcpExt:", false, 0);
	expect("TcpExt: DelayedACKs", false, 0);
	expect("TcpExt: DelayedACKs\n", false, 0);
	expect("TcpExt: DelayedACKs\nTcpExt:", false, 0);
	expect("TcpExt: DelayedACKs\nTcpExt: \n", false, 0);
	expect("TcpExt: DelayedACKs\nIpExt: 5\n", false, 0);
	expect("TcpExt: a DelayedACKs\nTcpExt: 1\n", false, 0);
	expect("TcpExt: DelayedACKLocked DelayedACKLost\nTcpExt: 1 2\n", false, 0);
	expect("TcpExt: a b\nTcpExt: 1 2\nDelayedACKs 3\n", false, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_counter_is_found_by_its_name),
	cmocka_unit_test(what_is_no_such_counter_is_not_taken_for_it),
};

UNIT_MAIN(tests)
