// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/waiting.c
#include <string.h>
#include "unit.h"
#include "capture/waiting.h"

static struct nt_record record_of(uint64_t share, uint64_t number)
{
	struct nt_record record;

	memset(&record, 0, sizeof(record));
	record.time_ns = number;
	record.sender.present = 1;
	record.sender.share = share;
	return record;
}

TEST(they_go_in_the_order_in_which_they_came)
{
	size_t memory = __sanitizer_get_current_allocated_bytes();
	struct nt_waiting waiting = {};
	struct nt_record r;
	uint64_t next = 0;

	assert_null(nt_waiting_first(&waiting));
	for (uint64_t i = 0; i < 3 * NT_MOST_WAITING; i++) {
		r = record_of(i % 3, i);
		assert_true(nt_waiting_add(&waiting, &r));
		if (i % 7)
			continue;
		while (nt_waiting_first(&waiting)) {
			assert_int_equal(nt_waiting_first(&waiting)->time_ns, next++);
			nt_waiting_drop(&waiting);
		}
		assert_int_equal(__sanitizer_get_current_allocated_bytes(), memory);
	}
	nt_waiting_clear(&waiting);
}

TEST(one_user_leaves_room_for_another)
{
	struct nt_record r = record_of(1, 0);
	struct nt_waiting waiting = {};
	size_t mine = 0, theirs = 0, others = 0;

	while (nt_waiting_add(&waiting, &r))
		mine++;
	assert_true(mine >= NT_MOST_WAITING / 2 && mine < NT_MOST_WAITING);
	r = record_of(2, 0);
	while (nt_waiting_add(&waiting, &r))
		theirs++;
	assert_true(theirs >= NT_MOST_WAITING / 16);
	for (uint64_t share = 3; share < 100; share++) {
		struct nt_record other = record_of(share, 0);

		while (nt_waiting_add(&waiting, &other))
			others++;
	}
	assert_in_range(mine + theirs + others, 4000, 4096);
	for (size_t i = 0; i < mine; i++)
		nt_waiting_drop(&waiting);
	assert_int_equal(waiting.count, theirs + others);
	nt_waiting_clear(&waiting);
}

UNIT_MAIN()
