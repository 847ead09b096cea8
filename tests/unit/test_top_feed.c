// SPDX-License-Identifier: GPL-2.0
// links: userspace/top/feed.c userspace/top/data.c userspace/top/rates.c userspace/base/text.c
// links: userspace/protocol/answers.c userspace/protocol/json_scan.c userspace/base/numbers.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "bpf/nagletrace.h"
#include "protocol/answers.h"
#include "top/feed.h"

#define SECOND 1000000000ULL
#define SNAPSHOT \
	"{\"type\":\"snapshot\",\"protocol\":1,\"started\":\"s\",\"stalls\":%d,\"connections\":[%s]}"
/* A connection: its pid, port, and what else is told of its sender. */
#define CONNECTION(sender)                                                                         \
	"\"side\":\"sender\",\"cause\":\"c\",\"receiver\":{\"address\":\"127.0.0.1:80\"},"         \
	"\"sender\":{\"pid\":%d,\"comm\":\"java\",\"netns\":1,\"address\":\"127.0.0.1:%d\"" sender \
	"}"

static struct nt_top_data data;
static char err[NT_ANSWER_ERR];

static int set_up(void **state)
{
	nt_top_data_init(&data, SECOND);
	return 0;
}

static int tear_down(void **state)
{
	nt_top_data_free(&data);
	return 0;
}

static enum nt_top_fed feed(uint64_t seconds, const char *line)
{
	char *copy = strdup(line);
	enum nt_top_fed fed =
		nt_top_feed_line(&data, copy, strlen(copy), seconds * SECOND, err, sizeof(err));

	free(copy);
	return fed;
}

/* A snapshot with one connection that has stalled so often. */
static void snapshot(uint64_t seconds, int stalls)
{
	char connection[300], line[600];

	snprintf(connection, sizeof(connection),
		 "{" CONNECTION("") ",\"stalls\":%d,\"excess_us\":%d}", 42, 5000, stalls,
		 stalls * 40000);
	snprintf(line, sizeof(line), SNAPSHOT, stalls, connection);
	assert_int_equal(feed(seconds, line), NT_TOP_FED_SNAPSHOT);
}

/* As many connections as a snapshot has, each with the deepest stack of long names. */
TEST(the_largest_snapshot_is_taken)
{
	size_t length;
	char *line;
	FILE *out = open_memstream(&line, &length);

	fputs("{\"type\":\"snapshot\",\"protocol\":1,\"started\":\"s\",\"series\":[0", out);
	for (int i = 0; i < 17 * 1000; i++)
		fputs(",{\"comm\":\"java\"}", out);
	fputs("],\"connections\":[", out);
	for (int i = 0; i < NT_TOP_ROWS; i++) {
		fprintf(out,
			"%s{\"stalls\":1,\"side\":\"sender\",\"receiver\":{\"address\":\"b\"},"
			"\"sender\":{\"pid\":%d,\"address\":\"127.0.0.1:%d\",\"stack\":[",
			i ? "," : "", i + 1, i);
		for (int n = 0; n < NT_STACK_DEPTH; n++)
			fprintf(out,
				"%s{\"ip\":\"0x7f0011223344\",\"module\":\"/usr/lib/%064d.so\","
				"\"offset\":\"0x11223344\",\"symbol\":\"f%d_%0200d\"}",
				n ? "," : "", 0, n, 0);
		fputs("]}}", out);
	}
	fputs("]}", out);
	fclose(out);
	assert_true(length > 10 << 20);
	assert_int_equal(feed(1, line), NT_TOP_FED_SNAPSHOT);
	assert_int_equal(data.count, NT_TOP_ROWS);
	assert_true(strstr(data.rows[0].where, "f0_") && strstr(data.rows[0].where, "f1_"));
	free(line);
}

TEST(a_tree_without_end_is_not_made)
{
	size_t length;
	char *line;
	FILE *out = open_memstream(&line, &length);

	fputs("{\"type\":\"snapshot\",\"protocol\":1,\"totals\":[0", out);
	for (int i = 0; i < 100000; i++)
		fputs(",{}", out);
	fputs("]}", out);
	fclose(out);
	assert_int_equal(feed(1, line), NT_TOP_FED_WRONG);
	assert_non_null(strstr(err, "too much in it"));
	free(line);
}

TEST(a_snapshot_is_taken)
{
	snapshot(1, 10);
	assert_true(data.any);
	assert_int_equal(data.count, 1);
	assert_int_equal(data.stalls, 10);
	assert_string_equal(data.rows[0].comm, "java");
	assert_int_equal(data.rows[0].key.pid, 42);
	assert_true(data.rows[0].key.sender);
	assert_int_equal(data.rows[0].stalls, 10);
	assert_int_equal(data.rows[0].excess_us, 400000);
	assert_true(nt_top_row_shown(&data.rows[0]));
}

TEST(what_was_looked_at_is_summed_up)
{
	feed(1,
	     "{\"type\":\"snapshot\",\"protocol\":1,\"totals\":{\"writes\":50,\"holds\":"
	     "{\"nagle\":24,\"cork\":1},\"delayed_acks\":{\"timer\":3,\"read\":4}},"
	     "\"dropped\":{\"ring_full\":2,\"stack\":3,\"late_ack_limit\":4},\"missing_hooks\":[\"a\"]}");
	assert_int_equal(data.writes, 50);
	assert_int_equal(data.holds, 25);
	assert_int_equal(data.delayed_acks, 7);
	assert_int_equal(data.records_dropped, 2);
	assert_int_equal(data.missing_hooks, 1);
}

TEST(a_daemon_in_standby_is_known_by_its_state)
{
	feed(1, "{\"type\":\"snapshot\",\"protocol\":1,\"standby\":{\"state\":\"standby\"}}");
	assert_true(data.in_standby);
	feed(2, "{\"type\":\"snapshot\",\"protocol\":1,\"standby\":{\"state\":\"attached\"}}");
	assert_false(data.in_standby);
	feed(3, "{\"type\":\"snapshot\",\"protocol\":1,\"standby\":{\"state\":7}}");
	assert_false(data.in_standby);
	feed(4, "{\"type\":\"snapshot\",\"protocol\":1}");
	assert_false(data.in_standby);
}

TEST(rates_are_those_of_what_is_new)
{
	for (int i = 0; i <= 20; i++)
		snapshot(10 + i, 1000 + 22 * i);
	assert_true(data.rows[0].rate > 21.9 && data.rows[0].rate < 22.1);
	assert_true(nt_top_rates_now(&data.rates) > 21.9 && nt_top_rates_now(&data.rates) < 22.1);
	for (int i = 0; i <= 12; i++)
		snapshot(31 + i, 1440); /* none any more */
	assert_true(data.rows[0].rate == 0);
}

TEST(a_connection_that_counts_anew_keeps_its_rate_until_more_is_known)
{
	for (int i = 0; i <= 10; i++)
		snapshot(10 + i, 1000 + 22 * i);
	snapshot(21, 600); /* the daemon's window turned */
	assert_true(data.rows[0].rate > 21.9 && data.rows[0].rate < 22.1);
	assert_int_equal(data.rows[0].stalls, 600);
}

TEST(what_a_snapshot_lacks_is_shown_no_more_and_then_dropped)
{
	char line[300];

	snapshot(1, 10);
	snprintf(line, sizeof(line), SNAPSHOT, 10, "");
	feed(2, line);
	assert_int_equal(data.count, 1);
	assert_false(nt_top_row_shown(&data.rows[0]));
	feed(3, line);
	assert_int_equal(data.count, 0);
}

TEST(a_stall_becomes_the_last_one_of_its_connection)
{
	const struct nt_top_stall *last;

	snapshot(1, 10);
	assert_int_equal(feed(1,
			      "{\"type\":\"stall\",\"side\":\"sender\",\"cause\":\"c\","
			      "\"time\":\"2026-11-22T01:02:03.456789Z\","
			      "\"duration_us\":40312,\"ack_after_hold_us\":-20,"
			      "\"sender\":{\"address\":\"127.0.0.1:5000\",\"netns\":1,\"pid\":42,"
			      "\"comm\":\"java\","
			      "\"hold\":{\"reason\":\"nagle\",\"release\":\"ack\",\"bytes\":7}},"
			      "\"receiver\":{\"address\":\"127.0.0.1:80\","
			      "\"pending_ack\":{\"duration_us\":40102,\"release\":\"timer\","
			      "\"locked\":true}}}"),
			 NT_TOP_FED_STALL);
	assert_int_equal(data.count, 1);
	last = &data.rows[0].last;
	assert_true(last->known && last->held && last->pending && last->ordered);
	assert_true(last->locked);
	assert_int_equal(last->duration_us, 40312);
	assert_int_equal(last->ack_us, 40102);
	assert_int_equal(last->ack_after_us, -20);
	assert_int_equal(last->bytes, 7);
	assert_string_equal(last->ack_release, "timer");
	assert_non_null(strstr(last->clock, ":03.456"));
	snapshot(2, 11);
	assert_true(data.rows[0].last.known);
}

TEST(a_receivers_stall_is_told_of_its_own_end)
{
	feed(1, "{\"type\":\"stall\",\"side\":\"receiver\",\"duration_us\":40000,"
		"\"receiver\":{\"address\":\"a\",\"pid\":7,\"pending_ack\":"
		"{\"duration_us\":39000,\"release\":\"timer\",\"bytes\":6}},"
		"\"sender\":{\"address\":\"b\",\"hold\":{\"reason\":\"nagle\",\"bytes\":7}}}");
	assert_int_equal(data.count, 1);
	assert_true(data.rows[0].last.held && data.rows[0].last.pending);
	assert_string_equal(data.rows[0].key.local, "a");
	assert_string_equal(data.rows[0].key.remote, "b");
	assert_int_equal(data.rows[0].key.pid, 7);
	assert_int_equal(data.rows[0].last.ack_us, 39000);
	assert_false(data.rows[0].last.ordered);
	assert_false(nt_top_row_shown(&data.rows[0]));
}

TEST(another_protocol_and_what_is_no_daemon_is_told)
{
	assert_int_equal(feed(1, "{\"type\":\"snapshot\",\"protocol\":2}"), NT_TOP_FED_WRONG);
	assert_non_null(strstr(err, "protocol 2"));
	assert_int_equal(feed(1, "HTTP/1.1 400 Bad Request"), NT_TOP_FED_WRONG);
	assert_non_null(strstr(err, "no nagletrace daemon"));
	assert_int_equal(feed(1, "{\"type\":\"error\",\"error\":\"no\\n\\u001b[2J\"}"),
			 NT_TOP_FED_WRONG);
	assert_non_null(strstr(err, "no\\x0a\\x1b[2J"));
	assert_int_equal(feed(1, "{\"type\":\"news\",\"protocol\":1}"), NT_TOP_FED_OTHER);
	assert_int_equal(feed(1, "{\"type\":\"late_ack\",\"ack_id\":\"0123456789abcdef\"}"),
			 NT_TOP_FED_OTHER);
	assert_false(data.any);
}

TEST(whatever_is_told_memory_is_bounded)
{
	char line[400];

	for (int i = 0; i < 5 * NT_TOP_ROWS; i++) {
		snprintf(line, sizeof(line), "{\"type\":\"stall\"," CONNECTION("") "}", i, i);
		assert_int_equal(feed(1, line), NT_TOP_FED_STALL);
	}
	assert_int_equal(data.count, 2 * NT_TOP_ROWS);
	snprintf(line, sizeof(line), SNAPSHOT, 1, "");
	feed(2, line);
	feed(3, line);
	assert_int_equal(data.count, 0);
}

/* A snapshot of so many connections from number first on. */
static void snapshot_of(uint64_t seconds, int first, int n)
{
	static char list[NT_TOP_ROWS * 200], line[sizeof(list) + 200];
	size_t at = 0;

	for (int i = first; i < first + n; i++)
		at += snprintf(list + at, sizeof(list) - at, "%s{" CONNECTION("") ",\"stalls\":1}",
			       i > first ? "," : "", i, i);
	assert_true(at < sizeof(list));
	snprintf(line, sizeof(line), SNAPSHOT, 1, list);
	assert_int_equal(feed(seconds, line), NT_TOP_FED_SNAPSHOT);
}

static const struct nt_top_row *row_of(int number)
{
	for (size_t i = 0; i < data.count; i++)
		if (data.rows[i].key.pid == number)
			return &data.rows[i];
	return NULL;
}

TEST(what_a_snapshot_tells_has_room_whatever_stalled)
{
	char line[400];

	snapshot_of(1, 1, 1);
	for (int i = 1; i <= 3 * NT_TOP_ROWS; i++) {
		snprintf(line, sizeof(line), "{\"type\":\"stall\"," CONNECTION("") "}", i, i);
		feed(1, line);
	}
	snapshot_of(2, 2 * NT_TOP_ROWS, 2); /* for the stalls of the first there was room */
	assert_true(row_of(2 * NT_TOP_ROWS) && row_of(2 * NT_TOP_ROWS)->last.known);
	assert_true(row_of(2 * NT_TOP_ROWS + 1) && nt_top_row_shown(row_of(2 * NT_TOP_ROWS + 1)));
	assert_true(row_of(1) && row_of(1)->last.known); /* one that was told goes last */
}

TEST(what_a_snapshot_tells_has_room_whatever_others_told)
{
	for (int i = 1; i <= 3; i++)
		snapshot_of(i, i * 1000, NT_TOP_ROWS);
	for (int i = 3000; i < 3000 + NT_TOP_ROWS; i++)
		assert_true(row_of(i) && nt_top_row_shown(row_of(i)));
}

/* ---- rates ---- */

TEST(cells_are_as_many_as_intervals_passed)
{
	struct nt_top_rates rates;
	char text[NT_SPARKLINE_LEN];

	nt_top_rates_init(&rates, SECOND);
	nt_top_rates_add(&rates, 10 * SECOND, 100);
	assert_int_equal(nt_top_rates_sparkline(&rates, 80, text), 0);
	nt_top_rates_add(&rates, 11 * SECOND, 100);
	nt_top_rates_add(&rates, 13 * SECOND, 120); /* late: two cells of ten */
	nt_top_rates_add(&rates, 13 * SECOND + SECOND / 4, 125);
	nt_top_rates_add(&rates, 14 * SECOND, 140);
	assert_int_equal(nt_top_rates_sparkline(&rates, 80, text), 4);
	assert_string_equal(text, "▁▅▅█");
	assert_true(nt_top_rates_now(&rates) == 20);
	assert_true(nt_top_rates_most(&rates, 80) == 20);
	assert_int_equal(nt_top_rates_sparkline(&rates, 2, text), 2);
	assert_string_equal(text, "▅█");
}

TEST(a_time_without_a_daemon_is_a_gap_and_no_peak)
{
	struct nt_top_rates rates;
	char text[NT_SPARKLINE_LEN];

	nt_top_rates_init(&rates, SECOND);
	nt_top_rates_add(&rates, 10 * SECOND, 100);
	nt_top_rates_add(&rates, 11 * SECOND, 110);
	nt_top_rates_break(&rates);
	nt_top_rates_add(&rates, 14 * SECOND, 1000000);
	nt_top_rates_add(&rates, 15 * SECOND, 1000010);
	nt_top_rates_add(&rates, 16 * SECOND, 3); /* another daemon */
	nt_top_rates_add(&rates, 17 * SECOND, 13);
	assert_int_equal(nt_top_rates_sparkline(&rates, 80, text), 7);
	assert_string_equal(text, "█   █ █");
	assert_true(nt_top_rates_most(&rates, 80) == 10);
}

TEST(the_oldest_cells_go_first)
{
	struct nt_top_rates rates;
	char text[NT_SPARKLINE_LEN];
	uint64_t stalls = 0;

	nt_top_rates_init(&rates, SECOND);
	for (uint64_t i = 0; i <= 3 * NT_TOP_CELLS; i++)
		nt_top_rates_add(&rates, (10 + i) * SECOND, stalls += i < NT_TOP_CELLS ? 1000 : 1);
	assert_int_equal(nt_top_rates_sparkline(&rates, 10 * NT_TOP_CELLS, text), NT_TOP_CELLS);
	assert_true(nt_top_rates_most(&rates, NT_TOP_CELLS) == 1);
	nt_top_rates_add(&rates, UINT64_MAX / 2, stalls); /* a machine that slept long */
	assert_true(nt_top_rates_most(&rates, NT_TOP_CELLS) == 0);
}

UNIT_MAIN_WITH(set_up, tear_down)
