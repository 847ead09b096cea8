// SPDX-License-Identifier: GPL-2.0
// links: userspace/top/ladder.c userspace/base/text.c
#include <stdio.h>
#include <string.h>
#include "unit.h"
#include "top/ladder.h"

static char lines[NT_LADDER_LINES][NT_LADDER_BYTES];

static struct nt_top_stall seen_at_both_ends(void)
{
	return (struct nt_top_stall){
		.known = true,
		.held = true,
		.pending = true,
		.ordered = true,
		.duration_us = 44000,
		.reason = "nagle",
		.release = "ack",
		.bytes = 7,
		.in_flight = 6,
		.ack_us = 43900,
		.ack_after_us = -10,
		.ack_release = "timer",
	};
}

static size_t draw(const struct nt_top_stall *stall, size_t width, size_t height)
{
	return nt_text_ladder(stall, "lab-client[1]", "lab-server[2]", width, height, lines);
}

/* The line with this text; fails where there is none. */
static size_t line_with(size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strstr(lines[i], text))
			return i;
	for (size_t i = 0; i < n; i++)
		print_message("%s\n", lines[i]);
	fail_msg("no line with \"%s\"", text);
	return 0;
}

static size_t columns(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

static size_t times(const char *line, const char *what)
{
	size_t n = 0;

	while ((line = strstr(line, what))) {
		line += strlen(what);
		n++;
	}
	return n;
}

TEST(both_spans_are_drawn_from_their_begin_to_their_end)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n = draw(&stall, 80, 12), arrives, held, ack, released;

	assert_int_equal(n, 12);
	assert_non_null(strstr(lines[0], "lab-client[1]"));
	assert_non_null(strstr(lines[0], "lab-server[2]"));
	arrives = line_with(n, "ACK delayed");
	held = line_with(n, "7 B held: Nagle");
	ack = line_with(n, "timer fires");
	released = line_with(n, "released");
	assert_true(arrives < held && held < ack && ack < released && released == n - 1);
	assert_non_null(strstr(lines[arrives], "─ 6 B ─"));
	assert_non_null(strstr(lines[ack], "◀"));
	assert_non_null(strstr(lines[released], "─ 7 B ─"));
	for (size_t i = 1; i < n; i++)
		assert_int_equal(times(lines[i], "┃"),
				 (i >= held && i <= released) + (i >= arrives && i <= ack));
	line_with(n, "held 44.0 ms");
	line_with(n, "pending 43.9 ms");
}

TEST(an_ack_that_nobody_saw_leave_ends_the_hold)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n;

	stall.locked = true;
	stall.duration_us = 80000;
	n = draw(&stall, 100, 12);
	assert_non_null(strstr(lines[line_with(n, "late (not seen)")], "80.0 ms"));
	for (size_t i = 0; i < n; i++)
		assert_null(strstr(lines[i], "timer fires"));
}

TEST(the_lines_between_are_to_scale)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n;

	stall.ack_after_us = 11000; /* a quarter, and three quarters, of the hold */
	stall.ack_us = 22000;
	n = draw(&stall, 80, 22);
	assert_int_equal(line_with(n, "held: Nagle"), 1);
	assert_int_equal(line_with(n, "ACK delayed"), 6);
	assert_int_equal(line_with(n, "timer fires"), 16);
	assert_int_equal(line_with(n, "released"), 21);
	assert_non_null(strstr(lines[6], " 11.0 ms"));
	assert_non_null(strstr(lines[16], " 33.0 ms"));
	assert_non_null(strstr(lines[21], " 44.0 ms"));
}

TEST(what_only_the_sender_shows_is_not_made_up_for_the_receiver)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n;

	stall.pending = stall.ordered = false;
	stall.ack_release[0] = '\0';
	n = nt_text_ladder(&stall, "lab-client[1]", NULL, 80, 12, lines);
	line_with(n, "receiver, not here");
	line_with(n, "late (not seen)");
	line_with(n, "┆");
	for (size_t i = 0; i < n; i++)
		assert_null(strstr(lines[i], "pending"));
}

TEST(a_cork_has_no_ack)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n;

	stall.pending = stall.ordered = false;
	strcpy(stall.reason, "cork");
	strcpy(stall.release, "timer");
	n = draw(&stall, 80, 12);
	line_with(n, "7 B held: TCP_CORK");
	line_with(n, "probe timer fires");
	for (size_t i = 0; i < n; i++)
		assert_null(strstr(lines[i], "ACK"));
}

TEST(what_only_the_receiver_shows_is_drawn_from_its_end)
{
	struct nt_top_stall stall = seen_at_both_ends();
	size_t n;

	stall.held = stall.ordered = false;
	stall.ack_bytes = 6;
	n = nt_text_ladder(&stall, NULL, "lab-server[2]", 80, 12, lines);
	line_with(n, "sender, not here");
	line_with(n, "waited (not seen)");
	assert_non_null(strstr(lines[line_with(n, "ACK delayed")], "─ 6 B ─"));
	line_with(n, "pending 43.9 ms");
}

TEST(it_never_leaves_its_room)
{
	struct nt_top_stall stalls[] = {seen_at_both_ends(), seen_at_both_ends(),
					seen_at_both_ends(), seen_at_both_ends()};
	static const char name[] = "größtes-Programm-mit-langem-Namen[4194304]";

	stalls[1].duration_us = stalls[1].bytes = stalls[1].in_flight = UINT64_MAX;
	stalls[1].ack_us = INT64_MAX;
	stalls[1].ack_after_us = INT64_MIN;
	memset(stalls[1].reason, 'x', sizeof(stalls[1].reason) - 1);
	memset(stalls[1].ack_release, 'x', sizeof(stalls[1].ack_release) - 1);
	stalls[2].duration_us = stalls[2].ack_us = stalls[2].ack_after_us = 0;
	stalls[3].ordered = false;
	for (size_t s = 0; s < 4; s++) {
		for (size_t width = 0; width < 130; width++) {
			for (size_t height = 0; height < 40; height++) {
				size_t n = nt_text_ladder(&stalls[s], name, name, width, height,
							  lines);

				assert_true(n <= height);
				for (size_t i = 0; i < n; i++)
					assert_true(columns(lines[i]) <= width);
			}
		}
	}
	assert_int_equal(draw(&stalls[0], NT_LADDER_LEAST_COLUMNS - 1, 20), 0);
	assert_int_equal(draw(&stalls[0], 80, NT_LADDER_LEAST_LINES - 1), 0);
	assert_int_equal(draw(&stalls[0], NT_LADDER_LEAST_COLUMNS, NT_LADDER_LEAST_LINES),
			 NT_LADDER_LEAST_LINES);
}

TEST(a_stall_that_is_not_known_is_not_drawn)
{
	struct nt_top_stall stall = seen_at_both_ends();

	stall.held = stall.pending = false;
	assert_int_equal(draw(&stall, 80, 12), 0);
	stall = seen_at_both_ends();
	stall.known = false;
	assert_int_equal(draw(&stall, 80, 12), 0);
}

UNIT_MAIN()
