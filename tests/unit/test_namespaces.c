// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/namespaces.c userspace/base/each_process.c
#include "unit.h"
#include "attach/tracer.h"
#include "capture/namespaces.h"
#include "nagletrace.skel.h"

static void expect(const char *text, bool found, uint64_t value)
{
	uint64_t got = 4711;

	assert_int_equal(nt_namespaces_parse(text, &got), found);
	if (found)
		assert_int_equal(got, value);
}

TEST(the_counter_is_found_by_its_name)
{
	expect("TcpExt: SyncookiesSent DelayedACKs DelayedACKLocked\n"
	       "TcpExt: 0 42 7\n"
	       "IpExt: InNoRoutes\nIpExt: 3\n",
	       true, 42);
	expect("IpExt: DelayedACKs\nIpExt: 3\nTcpExt: DelayedACKs\nTcpExt: 18446744073709551615\n",
	       true, UINT64_MAX);
	expect("TcpExt: DelayedACKLocked DelayedACKs\nTcpExt: 1 2", true, 2);
}

TEST(what_is_no_such_counter_is_not_taken_for_it)
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

/* ---- threads as these tests want them, in the place of userspace/attach/iterator.c ---- */

static struct {
	struct nagletrace_bpf__bss bss;
	uint32_t threads, namespaces,
		next; /* thread after thread, of one namespace after another */
} kernel;

int nt_iterator_begin(struct nt_iterator *iterator, const struct bpf_link *link, size_t entry)
{
	kernel.next = 0;
	return 0;
}

ssize_t nt_iterator_next(struct nt_iterator *iterator, const void **entries)
{
	static struct nt_netns piece[100];
	ssize_t n = 0;

	for (; n < 100 && kernel.next < kernel.threads; n++, kernel.next++)
		piece[n] = (struct nt_netns){.id = 1 + kernel.next % kernel.namespaces,
					     .tid = 1 + kernel.next};
	*entries = piece;
	kernel.bss.namespaces_complete = !n;
	return n;
}

void nt_iterator_end(struct nt_iterator *iterator)
{
}

static void scan(struct nt_namespaces *ns, uint32_t threads, uint32_t namespaces)
{
	kernel.threads = threads;
	kernel.namespaces = namespaces;
	assert_int_equal(nt_namespaces_scan(ns), 0);
}

TEST(a_scan_keeps_some_threads_of_each_and_no_more_than_it_has_room_for)
{
	struct nagletrace_bpf skel = {.bss = &kernel.bss};
	struct nt_tracer tracer = {.skel = &skel};
	struct nt_namespaces ns = {.tracer = &tracer};

	scan(&ns, 500000, 3);
	assert_int_equal(ns.count, 3 * 8);
	assert_true(ns.complete);
	scan(&ns, 500000, 250000);
	assert_true(ns.full && !ns.complete);
	assert_int_equal(ns.room, NT_NAMESPACES_LISTED);
	assert_in_range(ns.count, NT_NAMESPACES_LISTED / 2, NT_NAMESPACES_LISTED);
	scan(&ns, 10, 5);
	assert_true(ns.complete && !ns.full);
	assert_int_equal(ns.count, 10);
	free(ns.list);
}

UNIT_MAIN()
