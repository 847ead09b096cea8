// SPDX-License-Identifier: GPL-2.0
// links: userspace/timeline/timeline.c userspace/timeline/ends.c userspace/output/timeline_text.c
// links: userspace/timeline/queue.c
// links: userspace/base/text.c userspace/terms/tuple.c userspace/terms/words.c
#include <stdlib.h>
#include <string.h>
#include "no_owners.h"
#include "terms/settings.h"
#include "output/timeline.h"
#include "timeline/timeline.h"
#include "unit.h"

int nt_process_read(pid_t tgid, struct nt_process *process)
{
	memset(process, 0, sizeof(*process));
	return -3;
}

static const struct nt_settings settings = {.min_ns = MS};
static struct nt_timeline *timeline;
static FILE *out;
static char *text;
static size_t size;

static int write_line(void *context, const struct nt_line *line)
{
	const struct nt_writer narrow = {.wide = false};

	return nt_text_timeline_line(&narrow, out, line);
}

static int set_up(void **state)
{
	out = open_memstream(&text, &size);
	timeline = nt_timeline_new(&settings, NULL, write_line, NULL);
	return 0;
}

static int tear_down(void **state)
{
	nt_timeline_free(timeline);
	fclose(out);
	free(text);
	return 0;
}

/* An event at one of the ends of 10.0.0.1:40000 and 10.0.0.2:80. */
static struct nt_event at(bool server, enum nt_event_kind kind, uint64_t time_ns)
{
	struct nt_event e = {.size = sizeof(e), .kind = kind, .time_ns = time_ns};

	e.sk = server ? 2 : 1;
	e.tuple.family = 2;
	e.tuple.local_addr[0] = e.tuple.remote_addr[0] = 10;
	e.tuple.local_addr[3] = server ? 2 : 1;
	e.tuple.remote_addr[3] = server ? 1 : 2;
	e.tuple.local_port = server ? 80 : 40000;
	e.tuple.remote_port = server ? 40000 : 80;
	return e;
}

static struct nt_event segment(bool server, enum nt_event_kind kind, uint64_t time_ns, uint32_t seq,
			       uint32_t bytes, uint32_t ack)
{
	struct nt_event e = at(server, kind, time_ns);

	e.seq = seq;
	e.bytes = bytes;
	e.ack = ack;
	return e;
}

static const char *written(uint64_t until_ns, uint64_t dropped)
{
	assert_int_equal(nt_timeline_write(timeline, until_ns, dropped, UINT64_MAX), 0);
	fflush(out);
	return text;
}

static void add(struct nt_event e)
{
	nt_timeline_add(timeline, &e);
}

/* Does each of these lines stand in the text, in this order? */
static void assert_order(const char *text, const char *const lines[])
{
	const char *from = text;

	for (size_t i = 0; lines[i]; i++) {
		from = strstr(from, lines[i]);
		if (!from)
			fail_msg("no \"%s\" after what stands before it, in:\n%s", lines[i], text);
		from += strlen(lines[i]);
	}
}

TEST(a_write_stands_before_its_segment_and_both_ends_in_one_order)
{
	add(segment(false, NT_EVENT_SENT, 1000, 5001, 6, 9001));
	add(segment(true, NT_EVENT_RECEIVED, 1002, 5001, 6, 9001));
	/* from another CPU: it happened before the last one */
	add(segment(true, NT_EVENT_SENT, 1001, 9001, 4, 5001));
	add(segment(false, NT_EVENT_WRITE, 1500, 5001, 6, 0));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){
			     "left (process not known)", "10.0.0.1:40000 → 10.0.0.2:80",
			     " write 6 B", " sent 1:7 (6 B) ack 1", "right (process not known)",
			     "10.0.0.2:80", " sent 1:5 (4 B) ack 1", " got 1:7 (6 B) ack 1", NULL});
}

/* Two connections begin at once, with the same addresses in other namespaces: each has its ends. */
TEST(connections_with_the_same_addresses_are_told_apart_by_their_numbers)
{
	struct nt_event e;

	for (uint32_t i = 0; i < 2; i++) {
		e = segment(false, NT_EVENT_SENT, 1000 + i, 5001 + 900 * i, 10 + i, 9001 + 900 * i);
		e.sk = 10 + i;
		e.tuple.netns = 101 + i;
		add(e);
	}
	for (uint32_t i = 2; i-- > 0;) {
		e = segment(true, NT_EVENT_RECEIVED, 2000 - i, 5001 + 900 * i, 10 + i,
			    9001 + 900 * i);
		e.sk = 20 + i;
		e.tuple.netns = 201 + i;
		add(e);
	}
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"sent 1:11 (10 B)", "sent 1:12 (11 B)", "\n  2", "right",
					   "got 1:12 (11 B)", "\n  1", "right", "got 1:11 (10 B)",
					   NULL});
}

TEST(what_happened_later_waits)
{
	add(segment(false, NT_EVENT_SENT, 1000, 1, 1, 1));
	add(segment(false, NT_EVENT_SENT, 3000, 2, 2, 1));
	assert_null(strstr(written(2000, 0), "(2 B)"));
	add(segment(false, NT_EVENT_SENT, 2500, 4, 3, 1));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"(1 B)", "(3 B)", "(2 B)", NULL});
}

TEST(what_there_is_no_time_for_waits_and_something_is_always_written)
{
	for (uint64_t i = 0; i < 3; i++)
		add(segment(false, NT_EVENT_SENT, 1000 + i, 1 + i, 1, 1));
	for (size_t left = 3; left; left--) {
		assert_int_equal(nt_timeline_queued(timeline), left);
		assert_true(nt_timeline_waits(timeline, 2000));
		assert_int_equal(nt_timeline_write(timeline, 2000, 0, 0), 0);
	}
	assert_int_equal(nt_timeline_queued(timeline), 0);
	assert_false(nt_timeline_waits(timeline, UINT64_MAX));
}

TEST(what_is_left_out_at_the_end_counts_as_dropped)
{
	for (uint64_t i = 0; i < 5; i++)
		add(segment(false, NT_EVENT_SENT, 1000 + i, 1 + i, 1, 1));
	assert_int_equal(nt_timeline_write(timeline, UINT64_MAX, 3, 0), 0);
	assert_int_equal(nt_timeline_leave_out(timeline, 10), 0);
	assert_order(
		written(UINT64_MAX, 10),
		(const char *const[]){"3 events dropped here", "11 events dropped here", NULL});
	assert_int_equal(nt_timeline_queued(timeline), 0);
}

TEST(numbers_wrap_and_what_is_sent_again_is_told)
{
	add(segment(false, NT_EVENT_SENT, 1000, 0xfffffffe, 4, 1));
	add(segment(false, NT_EVENT_SENT, 2000, 2, 4, 1));
	add(segment(false, NT_EVENT_SENT, 3000, 0xfffffffe, 4, 1));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){" sent 1:5 (4 B)", " sent 5:9 (4 B)",
					   " sent again 1:5 (4 B)", NULL});
}

TEST(a_delayed_ack_goes_with_the_next_segment)
{
	const struct {
		uint32_t bytes;
		bool timer, drained;
		const char *how;
	} cases[] = {
		{0, true, false, "ACK delayed 40.0 ms: timer"},
		{5, false, false, "ACK delayed 40.0 ms: piggyback"},
		{0, false, true, "ACK delayed 40.0 ms: read"},
		{0, false, false, "ACK delayed 40.0 ms: segment"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nt_event sent;

		tear_down(state);
		set_up(state);
		add(segment(true, NT_EVENT_RECEIVED, 1, 1, 6, 1));
		add(at(true, NT_EVENT_ACK_DELAYED, 2));
		add(at(true, NT_EVENT_ACK_DELAYED, 3)); /* the same one still */
		if (cases[i].timer)
			add(at(true, NT_EVENT_ACK_TIMER, 40 * MS));
		sent = segment(true, NT_EVENT_SENT, 40 * MS + 2, 1, cases[i].bytes, 7);
		sent.drained = cases[i].drained;
		add(sent);
		assert_order(written(UINT64_MAX, 0),
			     (const char *const[]){"delays the ACK", cases[i].how, NULL});
		assert_null(strstr(strstr(text, "delays the ACK") + 1, "delays the ACK"));
	}
}

TEST(a_gap_says_what_is_kept_back)
{
	struct nt_event held = segment(false, NT_EVENT_HOLD_BEGIN, 10, 7, 7, 0);

	held.reason = NT_HOLD_NAGLE;
	add(held);
	add(at(true, NT_EVENT_ACK_DELAYED, 11));
	add(at(true, NT_EVENT_ACK_TIMER, 40 * MS + 11));
	held = segment(false, NT_EVENT_HOLD_END, 40 * MS + 20, 7, 7, 0);
	held.release = NT_RELEASE_ACK;
	held.duration_ns = 40 * MS + 10;
	add(held);
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){
			     "holds 7 B: nagle",
			     "· 40.0 ms; left holds 7 B (nagle); right delays its ACK",
			     "delayed-ACK timer fires", "releases 7 B: ack, 40.0 ms", NULL});
}

TEST(reads_are_told_apart_from_looks_and_dropped_events_where_they_are_missing)
{
	struct nt_event came = segment(true, NT_EVENT_RECEIVED, 1, 101, 10, 1);
	struct nt_event last = segment(false, NT_EVENT_SENT, 9, 111, 1, 1);

	came.drained = 1;
	last.dropped = 12;
	add(came);
	add(segment(true, NT_EVENT_READ, 2, 101, 0, 0)); /* MSG_PEEK */
	add(segment(true, NT_EVENT_READ, 3, 104, 0, 0));
	add(segment(true, NT_EVENT_READ, 4, 111, 0, 0));
	add(last);
	assert_order(written(UINT64_MAX, 15),
		     (const char *const[]){"read 3 B", "read 7 B", "12 events dropped here",
					   "sent 11:12 (1 B)", "3 events dropped here", NULL});
	assert_null(strstr(text, "read 0 B"));
}

TEST(an_address_of_a_socket_that_is_another_connection_now_begins_anew)
{
	struct nt_event e = segment(false, NT_EVENT_SENT, 1, 1, 1, 1);

	add(e);
	e.tuple.local_port = 40001;
	e.time_ns = 2;
	add(e);
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"  1        left", "  2        left", NULL});
}

static struct nt_event new_state(bool server, uint64_t time_ns, uint8_t now, uint32_t seq,
				 uint32_t ack)
{
	struct nt_event e = segment(server, NT_EVENT_STATE, time_ns, seq, 0, ack);

	e.flags = now;
	return e;
}

TEST(what_a_closed_socket_still_does_is_its_own_and_a_new_one_begins_anew)
{
	struct nt_event reset = segment(false, NT_EVENT_SENT, 5, 7, 0, 1);

	reset.flags = 0x14;
	add(new_state(false, 1, NT_TCP_ESTABLISHED, 1, 1));
	add(segment(false, NT_EVENT_SENT, 2, 1, 6, 1));
	add(new_state(false, 4, NT_TCP_CLOSE, 7, 1));
	add(reset);
	/* the same addresses and the same memory, another connection: nothing is sent again */
	add(new_state(false, 10, NT_TCP_ESTABLISHED, 1000, 5000));
	add(segment(false, NT_EVENT_SENT, 11, 1000, 6, 5000));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"  1        left", "closed", "  1    0.000000 sent RST",
					   "  2        left", "sent 1:7 (6 B) ack 1", NULL});
	assert_null(strstr(text, "sent again"));
	assert_null(strstr(strstr(text, "closed"), "  1        left"));
}

TEST(ends_of_what_was_never_seen_make_no_connection)
{
	add(new_state(false, 1, NT_TCP_CLOSE, 0, 0));
	add(at(false, NT_EVENT_HOLD_END, 2));
	assert_string_equal(written(UINT64_MAX, 0) ? text : "", "");
}

TEST(a_hold_that_was_noted_as_it_ended_begins_before_its_end)
{
	struct nt_event begin = segment(false, NT_EVENT_HOLD_BEGIN, 1005, 7, 7, 0);
	struct nt_event end = segment(false, NT_EVENT_HOLD_END, 1000, 7, 7, 0);

	begin.reason = end.reason = NT_HOLD_NAGLE;
	end.release = NT_RELEASE_ACK;
	add(begin);
	add(end);
	add(segment(false, NT_EVENT_SENT, 20 * MS, 7, 7, 0));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"holds 7 B", "releases 7 B", "· · ·", "sent", NULL});
	assert_null(strstr(text, "left holds"));
}

TEST(a_write_stands_before_the_segment_that_took_it_along)
{
	add(segment(false, NT_EVENT_WRITE, 1, 1, 100, 0)); /* with MSG_MORE */
	add(segment(false, NT_EVENT_SENT, 50, 1, 1100, 1));
	add(segment(false, NT_EVENT_WRITE, 60, 101, 1000, 0));
	assert_order(written(UINT64_MAX, 0),
		     (const char *const[]){"write 100 B", "write 1000 B", "sent 1:1101", NULL});
}

TEST(after_a_loss_nothing_is_said_of_what_went_on_before)
{
	struct nt_event held = segment(false, NT_EVENT_HOLD_BEGIN, 10, 7, 7, 0);
	struct nt_event later = segment(false, NT_EVENT_SENT, 50 * MS, 20, 1, 1);

	held.reason = NT_HOLD_NAGLE;
	later.dropped = 3;
	add(held);
	add(at(false, NT_EVENT_ACK_DELAYED, 11));
	add(later);
	assert_order(
		written(UINT64_MAX, 3),
		(const char *const[]){"delays the ACK", "3 events dropped", "· · ·", "sent", NULL});
	assert_null(strstr(text, "left holds"));
	assert_null(strstr(text, "delayed 5"));
}

TEST(long_streams_keep_their_numbers_and_lines_their_width)
{
	struct nt_event held = segment(true, NT_EVENT_HOLD_BEGIN, 4, 3000000000U, 65483, 0);

	held.in_flight_bytes = 65483;
	held.reason = NT_HOLD_NAGLE;
	add(segment(false, NT_EVENT_SENT, 1, 0, 1, 1));
	add(segment(true, NT_EVENT_SENT, 2, 1, 1, 1));
	add(segment(true, NT_EVENT_SENT, 3, 1500000000, 1, 1500000000));
	add(segment(true, NT_EVENT_SENT, 3, 3000000000U, 65483, 3000000000U));
	add(held);
	assert_order(written(UINT64_MAX, 0), (const char *const[]){" sent 3000000000 (65483 B)",
								   "holds 65483 B: nagle", NULL});
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80 + 2); /* an arrow is three bytes */
}

UNIT_MAIN_WITH(set_up, tear_down)
