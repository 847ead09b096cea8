// SPDX-License-Identifier: GPL-2.0
// links: userspace/fix_verdict.c userspace/text.c
#include <string.h>
#include "unit.h"
#include "fix_verdict.h"

#define MS 1000000ULL
#define S  (1000 * MS)

/* Ten seconds with so many stalls of 40 ms, and so many writes. */
static struct nt_fix_sum ten_seconds(uint64_t stalls, uint64_t writes)
{
	return (struct nt_fix_sum){10 * S, stalls, stalls * 40 * MS, writes};
}

static void expect(struct nt_fix_sum before, struct nt_fix_sum during, enum nt_fix_verdict verdict,
		   const char *words)
{
	char sentence[NT_FIX_SENTENCE_LEN];

	assert_int_equal(nt_fix_judge(&before, &during, "TCP_NODELAY", sentence), verdict);
	if (!strstr(sentence, words))
		fail_msg("\"%s\" lacks \"%s\"", sentence, words);
	assert_true(strlen(sentence) < NT_FIX_SENTENCE_LEN - 1);
}

static void no_stall_is_left(void **state)
{
	(void)state;
	expect(ten_seconds(200, 400), ten_seconds(0, 400), NT_FIX_CURED, "20.0 ms a write");
	expect(ten_seconds(200, 0), ten_seconds(0, 0), NT_FIX_CURED, "800 ms a second");
}

static void a_twentieth_is_a_cure_and_a_half_is_help(void **state)
{
	(void)state;
	expect(ten_seconds(200, 400), ten_seconds(10, 400), NT_FIX_CURED, "cures it");
	expect(ten_seconds(200, 400), ten_seconds(11, 400), NT_FIX_HELPED, "helps in part");
	expect(ten_seconds(200, 400), ten_seconds(100, 400), NT_FIX_HELPED, "(-50 %)");
	expect(ten_seconds(200, 400), ten_seconds(101, 400), NT_FIX_NO_HELP, "does not help");
	expect(ten_seconds(200, 400), ten_seconds(400, 400), NT_FIX_NO_HELP, "(+100 %)");
}

/* Who waits for each answer stalls more often in the same time once each stall is shorter. */
static void writes_are_what_is_compared_by_where_they_are_counted(void **state)
{
	struct nt_fix_sum during = ten_seconds(0, 10000);

	(void)state;
	during.stalls = 5000;
	during.lost_ns = 5000 * MS;
	expect(ten_seconds(200, 400), during, NT_FIX_CURED, "500 us");
	during.writes = 0;
	expect(ten_seconds(200, 0), during, NT_FIX_NO_HELP, "by second");
}

static void too_little_is_no_verdict(void **state)
{
	struct nt_fix_sum second = {S, 0, 0, 0};

	(void)state;
	expect(ten_seconds(5, 10), ten_seconds(0, 10), NT_FIX_CURED, "ends");
	expect(ten_seconds(4, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "4 stalls before");
	expect(ten_seconds(1, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "1 stall before");
	expect(ten_seconds(0, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "nothing stalled before");
	/* interrupted after a second, in which four are to be expected */
	expect(ten_seconds(40, 0), second, NT_FIX_UNCLEAR, "some 4 would be expected");
	expect(ten_seconds(50, 0), second, NT_FIX_CURED, "ends");
	expect(ten_seconds(40, 100), ten_seconds(0, 12), NT_FIX_UNCLEAR, "too few");
	expect(ten_seconds(40, 100), ten_seconds(0, 0), NT_FIX_UNCLEAR, "wrote nothing");
}

static void another_load_is_said(void **state)
{
	(void)state;
	expect(ten_seconds(200, 400), ten_seconds(0, 199), NT_FIX_CURED, "less than half as often");
	expect(ten_seconds(200, 400), ten_seconds(100, 199), NT_FIX_NO_HELP, "the same load");
	expect(ten_seconds(200, 400), ten_seconds(0, 200), NT_FIX_CURED, "there was none");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(no_stall_is_left),
	cmocka_unit_test(a_twentieth_is_a_cure_and_a_half_is_help),
	cmocka_unit_test(writes_are_what_is_compared_by_where_they_are_counted),
	cmocka_unit_test(too_little_is_no_verdict),
	cmocka_unit_test(another_load_is_said),
};

UNIT_MAIN(tests)
