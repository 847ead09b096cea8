// SPDX-License-Identifier: GPL-2.0
// links: userspace/output/advice.c userspace/base/text.c userspace/terms/words.c
#include <string.h>
#include <stdio.h>
#include "unit.h"
#include "output/advice.h"

/* A client whose ACK was delayed by its server, seen at both ends. */
static struct nt_stall stall_of(enum nt_ack_release end, enum nt_ack_reason why)
{
	struct nt_stall stall = {.side = NT_SIDE_SENDER, .receiver = {.tgid = 7, .comm = "server"}};
	struct nt_record *r = &stall.record;

	r->cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	r->evidence = NT_EVIDENCE_SEEN;
	r->sender.present = r->receiver.present = true;
	r->ack = (struct nt_ack_part){
		.begin_ns = 5 * MS, .end_ns = 41 * MS, .release = end, .reason = why};
	return stall;
}

static void expect_why(enum nt_ack_release end, enum nt_ack_reason why, const char *delay)
{
	struct nt_stall stall = stall_of(end, why);
	char expected[NT_ADVICE_LEN];
	struct nt_advice advice;

	nt_advice_for(&stall, NT_PATTERN_WRITE_WRITE_READ, &advice);
	snprintf(
		expected, sizeof(expected),
		"Nagle holds the small segment until what is in flight is acknowledged; server[7]%s",
		delay);
	assert_string_equal(advice.why, expected);
}

TEST(the_timer_is_blamed_only_where_it_fired)
{
	expect_why(NT_ACK_TIMER, NT_ACK_REASON_PINGPONG,
		   ", in interactive mode, delays that ACK until its timer fires (36.0 ms)");
	expect_why(NT_ACK_READ, NT_ACK_REASON_PINGPONG,
		   " delays that ACK until it reads (36.0 ms)");
	expect_why(NT_ACK_SEGMENT, NT_ACK_REASON_PINGPONG, " delays that ACK for long (36.0 ms)");
	expect_why(
		NT_ACK_TIMER, NT_ACK_REASON_QUICK_EXHAUSTED,
		" has used up its quick ACKs and delays that one until its timer fires (36.0 ms)");
	expect_why(NT_ACK_READ, NT_ACK_REASON_QUICK_EXHAUSTED,
		   " has used up its quick ACKs and delays that one until it reads (36.0 ms)");
	expect_why(
		NT_ACK_TIMER, NT_ACK_REASON_LEFT_UNREAD,
		" read a part and left the rest, so that its read sent no ACK, and delays that one "
		"until its timer fires (36.0 ms)");
}

/* It may have been a relay, whose backend took as long. */
TEST(nagle_is_no_fact_from_the_receivers_end_alone)
{
	struct nt_stall stall = stall_of(NT_ACK_TIMER, NT_ACK_REASON_PINGPONG);
	struct nt_advice advice;

	stall.side = NT_SIDE_RECEIVER;
	stall.record.cause = NT_CAUSE_DELAYED_ACK;
	stall.record.hold.reason = NT_HOLD_UNKNOWN;
	stall.record.evidence = NT_EVIDENCE_INFERRED;
	stall.record.sender.present = false;
	nt_advice_for(&stall, NT_PATTERN_PEER_HOLDS, &advice);
	assert_string_equal(advice.why,
			    "the peer waited for this ACK, most often with a small segment that "
			    "Nagle holds, or it wrote just then, as a relay may; server[7], in "
			    "interactive mode, delays that ACK until its timer fires (36.0 ms)");
	assert_null(strstr(advice.pattern, "Nagle"));
	assert_null(strstr(advice.fix, "Nagle"));
}

TEST(what_limits_the_delay_and_who_asked_for_it_is_said)
{
	expect_why(
		NT_ACK_TIMER, NT_ACK_REASON_QUICKACK_OFF,
		" switched TCP_QUICKACK off and delays that ACK until its timer fires (36.0 ms)");
	expect_why(
		NT_ACK_TIMER, NT_ACK_REASON_DELACK_MAX,
		" delays that ACK until its timer fires (36.0 ms, as its socket or route limits it)");
}

/* Each end's remedy says what helps, and the sender's that TCP_NODELAY does not. */
TEST(who_waits_without_nagle_gets_a_remedy_of_its_own)
{
	static const unsigned int reasons[] = {NT_HOLD_MSG_MORE, NT_HOLD_CWND, NT_HOLD_SNDBUF,
					       NT_HOLD_LINGER};
	struct nt_stall stall = stall_of(NT_ACK_TIMER, NT_ACK_REASON_PINGPONG);
	struct nt_advice advice;

	stall.record.cause = NT_CAUSE_DELAYED_ACK;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		stall.record.hold.reason = reasons[i];
		stall.side = NT_SIDE_SENDER;
		nt_advice_for(&stall, NT_PATTERN_WRITE_WRITE_READ, &advice);
		assert_null(strstr(advice.why, "Nagle"));
		assert_non_null(strstr(advice.fix, "TCP_NODELAY does not help"));
		stall.side = NT_SIDE_RECEIVER;
		nt_advice_for(&stall, NT_PATTERN_WRITE_WRITE_READ, &advice);
		assert_non_null(strstr(advice.fix, "TCP_QUICKACK"));
		assert_null(strstr(advice.fix, "NODELAY"));
	}
	stall = stall_of(NT_ACK_TIMER, NT_ACK_REASON_QUICKACK_OFF);
	stall.record.cause = NT_CAUSE_DELAYED_ACK;
	stall.record.hold.reason = NT_HOLD_HANDSHAKE;
	stall.record.sender.present = false;
	stall.side = NT_SIDE_RECEIVER;
	nt_advice_for(&stall, NT_PATTERN_SERVER_FIRST, &advice);
	assert_string_equal(
		advice.why,
		"the peer's accept() waits for the last ACK of the handshake; server[7] "
		"asked for that and delays the ACK until its timer fires (36.0 ms)");
	assert_string_equal(advice.evidence, "seen");
	assert_non_null(strstr(advice.fix, "TCP_DEFER_ACCEPT"));
}

static void expect_pattern(struct nt_hold_part hold, enum nt_pattern pattern, const char *expected)
{
	struct nt_stall stall = stall_of(NT_ACK_TIMER, NT_ACK_REASON_PINGPONG);
	struct nt_advice advice;

	stall.record.hold = hold;
	nt_advice_for(&stall, pattern, &advice);
	assert_string_equal(advice.pattern, expected);
}

/* A size is a write's where that is known, and else that of the bytes. */
TEST(sizes_are_those_of_the_writes)
{
	struct nt_hold_part hold = {.bytes = 7, .in_flight_bytes = 6, .writes = 1, .mss = 1448};

	hold.write_bytes = 7;
	hold.sent_one = 1;
	expect_pattern(hold, NT_PATTERN_WRITE_WRITE_READ,
		       "write 6 B (sent), write 7 B (held), waits for the reply");
	hold.sent_one = 0;
	expect_pattern(hold, NT_PATTERN_WRITE_WRITE_READ,
		       "6 B in flight, write 7 B (held), waits for the reply");
	/* a part of the write has gone */
	hold.write_bytes = 3000;
	expect_pattern(
		hold, NT_PATTERN_REPLY_TAIL,
		"write 3000 B, of which the last 7 B are held, less than a segment of 1448 B");
	hold.bytes = 189;
	hold.writes = 3;
	hold.write_bytes = 63;
	expect_pattern(
		hold, NT_PATTERN_SEVERAL_WRITES,
		"6 B in flight, 3 writes of 63 B (held): parts of one message, or answers to "
		"requests that came together");
	expect_pattern(
		hold, NT_PATTERN_ONE_WAY,
		"6 B in flight, 3 writes of 63 B (held): messages one after the other, with no "
		"data from the peer in between");
	hold.write_bytes = 0; /* they are not alike */
	expect_pattern(hold, NT_PATTERN_WRITE_WRITE_READ,
		       "6 B in flight, 3 writes, 189 B (held), waits for the reply");
	/* no program saw a write */
	hold.writes = 0;
	expect_pattern(hold, NT_PATTERN_WRITE_WRITE_READ,
		       "6 B in flight, 189 B (held), waits for the reply");
	hold.reason = NT_HOLD_CORK;
	hold.writes = 1;
	hold.write_bytes = 189;
	expect_pattern(hold, NT_PATTERN_CORK_CEILING,
		       "write 189 B corked by TCP_CORK, and nothing came to release that");
}

static void expect_fix(enum nt_side side, const char *user, enum nt_cause cause, const char *fix)
{
	struct nt_stall stall = stall_of(NT_ACK_TIMER, NT_ACK_REASON_PINGPONG);
	struct nt_advice advice;

	stall.side = side;
	stall.record.cause = cause;
	stall.record.hold.reason = NT_HOLD_SNDBUF;
	stall.record.sender.user = stall.record.receiver.user = NT_USER_KERNEL;
	snprintf(stall.sender.comm, sizeof(stall.sender.comm), "%s", user);
	nt_advice_for(&stall, NT_PATTERN_WRITE_WRITE_READ, &advice);
	assert_non_null(strstr(advice.fix, fix));
	assert_null(strstr(advice.fix, "set TCP_NODELAY"));
}

TEST(a_socket_that_the_kernel_uses_has_a_remedy_of_its_own)
{
	const char none[NT_COMM_LEN] = "", longest[NT_COMM_LEN] = "iscsi_target_mo";
	struct nt_process user;
	char name[64];

	expect_fix(NT_SIDE_SENDER, "kernel (cifsd)", NT_CAUSE_NAGLE_DELAYED_ACK, "tcpnodelay");
	expect_fix(NT_SIDE_SENDER, "kernel (libceph)", NT_CAUSE_NAGLE_DELAYED_ACK, "notcp_nodelay");
	expect_fix(NT_SIDE_SENDER, "kernel (cifsd)", NT_CAUSE_DELAYED_ACK, "quickack");
	expect_fix(NT_SIDE_SENDER, "kernel (cifsd)", NT_CAUSE_CORK_CEILING, "options of the mount");
	expect_fix(NT_SIDE_SENDER, "kernel (sunrpc)", NT_CAUSE_NAGLE_DELAYED_ACK, "or the module");
	expect_fix(NT_SIDE_RECEIVER, "kernel", NT_CAUSE_NAGLE_DELAYED_ACK, "towards the peer");
	nt_process_of_kernel(longest, &user);
	assert_true(user.tgid < 0);
	nt_format_process(&user, name, sizeof(name));
	assert_string_equal(name, "kernel (iscsi_target_mo)");
	nt_process_of_kernel(none, &user);
	nt_format_process(&user, name, sizeof(name));
	assert_string_equal(name, "kernel");
}

UNIT_MAIN()
