// SPDX-License-Identifier: GPL-2.0
// links: userspace/fix/verdict.c userspace/base/text.c
#include <string.h>
#include "unit.h"
#include "fix/verdict.h"

#define S (1000 * MS)

/* Ten seconds with so many stalls of 40 ms, and so many writes. */
static struct nt_fix_sum ten_seconds(uint64_t stalls, uint64_t writes)
{
	return (struct nt_fix_sum){10 * S, stalls, stalls * 40.0 * MS, writes};
}

static void judged(const struct nt_fix_comparison *c, enum nt_fix_verdict verdict,
		   const char *words)
{
	char sentence[NT_FIX_SENTENCE_LEN];

	assert_int_equal(nt_fix_judge(c, "TCP_NODELAY", sentence), verdict);
	if (!strstr(sentence, words))
		fail_msg("\"%s\" lacks \"%s\"", sentence, words);
	assert_true(strlen(sentence) < NT_FIX_SENTENCE_LEN - 1);
}

/* All stalls are those of one connection that is compared. */
static void expect(struct nt_fix_sum before, struct nt_fix_sum during, enum nt_fix_verdict verdict,
		   const char *words)
{
	struct nt_fix_comparison c = {before, during, 1, before.stalls, 0};

	judged(&c, verdict, words);
}

/* Ten seconds before, and so long while it was set, of which two connections are compared. */
static struct nt_fix_comparison seconds(unsigned int during)
{
	return (struct nt_fix_comparison){.before = {.span_ns = 10 * S},
					  .during = {.span_ns = during * S},
					  .all_before = 300};
}

/* One that was looked at for eight seconds before. */
static void pair(struct nt_fix_comparison *c, uint64_t stalls_before, uint64_t during_ns,
		 uint64_t stalls_during)
{
	const struct nt_fix_pair p = {.before_ns = 8 * S,
				      .during_ns = during_ns,
				      .stalls_before = stalls_before,
				      .stalls_during = stalls_during,
				      .excess_before_ns = stalls_before * 40 * MS,
				      .excess_during_ns = stalls_during * 40 * MS};

	nt_fix_compare(c, &p);
}

TEST(connections_are_compared_with_themselves_for_equal_times)
{
	struct nt_fix_comparison c = seconds(10);

	pair(&c, 100, 10 * S, 100);
	pair(&c, 10, 10 * S, 10);
	assert_true(c.connections == 2 && c.before.stalls == 110 && c.during.stalls == 110);
	judged(&c, NT_FIX_NO_HELP, "on the 2 connections compared");
	c = seconds(4); /* it was interrupted */
	pair(&c, 100, 4 * S, 50);
	assert_true(c.before.stalls == 50 && c.before.excess_ns == 2.0 * S);
	judged(&c, NT_FIX_NO_HELP, "(+0 %)");
	c = seconds(10);
	pair(&c, 100, 0, 0); /* never set */
	assert_true(!c.connections && !c.before.stalls);
}

/* Of 300 stalls none can be compared: each was the only one of a connection. */
TEST(what_stalls_but_once_is_no_cure)
{
	struct nt_fix_comparison c = seconds(10);

	for (int i = 0; i < 300; i++)
		pair(&c, 0, 10 * S, 0);
	judged(&c, NT_FIX_UNCLEAR, "no connection stalled twice before");
	pair(&c, 4, 10 * S, 0);
	judged(&c, NT_FIX_UNCLEAR, "300 stalls before, of which some 4");
	pair(&c, 1, 10 * S, 0);
	judged(&c, NT_FIX_CURED, "ends the stalls on the 2 connections compared");
}

/* What is sent after 20 ms is no stall any more, whatever would have come without it. */
TEST(an_option_that_is_set_too_seldom_is_no_cure)
{
	struct nt_fix_comparison c = {ten_seconds(200, 400), ten_seconds(0, 400), 1, 200, 5 * MS};

	judged(&c, NT_FIX_CURED, "ends the stalls");
	c.again_ns = 22 * MS;
	judged(&c, NT_FIX_UNCLEAR, "could be set again only every 22.0 ms");
	c.during = c.before;
	judged(&c, NT_FIX_UNCLEAR, "choose fewer connections");
}

/* The writes counted are those of the whole process. */
TEST(writes_of_others_are_no_cure_and_no_harm)
{
	expect(ten_seconds(200, 400), ten_seconds(200, 40000), NT_FIX_UNCLEAR,
	       "wrote 100.0 times as often");
	expect(ten_seconds(2000, 40000), ten_seconds(400, 400), NT_FIX_UNCLEAR,
	       "100.0 times as seldom");
	/* by either measure it helps: the lower one */
	expect(ten_seconds(200, 400), ten_seconds(80, 40000), NT_FIX_HELPED, "by second");
}

TEST(no_stall_is_left)
{
	expect(ten_seconds(200, 400), ten_seconds(0, 400), NT_FIX_CURED, "20.0 ms a write");
	expect(ten_seconds(200, 0), ten_seconds(0, 0), NT_FIX_CURED, "800 ms a second");
}

TEST(a_twentieth_is_a_cure_and_a_half_is_help)
{
	expect(ten_seconds(200, 400), ten_seconds(10, 400), NT_FIX_CURED, "cures it");
	expect(ten_seconds(200, 400), ten_seconds(11, 400), NT_FIX_HELPED, "helps in part");
	expect(ten_seconds(200, 400), ten_seconds(100, 400), NT_FIX_HELPED, "(-50 %)");
	expect(ten_seconds(200, 400), ten_seconds(101, 400), NT_FIX_NO_HELP, "does not help");
	expect(ten_seconds(200, 400), ten_seconds(400, 400), NT_FIX_NO_HELP, "(+100 %)");
}

/* Who waits for each answer stalls more often in the same time once each stall is shorter. */
TEST(writes_are_what_is_compared_by_where_they_are_counted)
{
	struct nt_fix_sum during = ten_seconds(0, 10000);

	during.stalls = 5000;
	during.excess_ns = 5000 * MS;
	expect(ten_seconds(200, 400), during, NT_FIX_CURED, "500 us");
	during.writes = 0;
	expect(ten_seconds(200, 0), during, NT_FIX_NO_HELP, "by second");
}

TEST(too_little_is_no_verdict)
{
	expect(ten_seconds(5, 10), ten_seconds(0, 10), NT_FIX_CURED, "ends");
	expect(ten_seconds(4, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "4 stalls before");
	expect(ten_seconds(1, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "1 stall before");
	expect(ten_seconds(0, 10), ten_seconds(0, 10), NT_FIX_UNCLEAR, "nothing stalled before");
	expect(ten_seconds(40, 100), ten_seconds(0, 12), NT_FIX_UNCLEAR, "too few");
	expect(ten_seconds(40, 100), ten_seconds(0, 0), NT_FIX_UNCLEAR, "wrote nothing");
}

TEST(another_load_is_said)
{
	expect(ten_seconds(200, 400), ten_seconds(0, 199), NT_FIX_CURED, "less than half as often");
	expect(ten_seconds(200, 400), ten_seconds(100, 199), NT_FIX_UNCLEAR, "the same load");
	expect(ten_seconds(200, 400), ten_seconds(180, 199), NT_FIX_NO_HELP, "the same load");
	expect(ten_seconds(200, 400), ten_seconds(0, 200), NT_FIX_CURED, "there was none");
}

UNIT_MAIN()
