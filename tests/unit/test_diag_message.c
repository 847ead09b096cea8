// SPDX-License-Identifier: GPL-2.0
// links: userspace/sample/diag_message.c
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "unit.h"
#include "sample/diag_message.h"

#define REQUEST 7

struct told {
	struct nt_sampled last;
	int count;
};

/* A message about one socket, as the kernel sends it. */
struct answer {
	struct nlmsghdr head;
	struct inet_diag_msg msg;
	struct nlattr other_head;
	__u32 other;
	struct nlattr info_head;
	struct tcp_info info;
} __attribute__((packed, aligned(4)));

static void take(void *context, const struct nt_sampled *sampled)
{
	struct told *told = context;

	told->last = *sampled;
	told->count++;
}

/* A request's second part is held: 6 bytes are in flight for 30 ms. */
static struct answer an_answer(void)
{
	struct answer a = {
		.head = {.nlmsg_len = sizeof(a), .nlmsg_type = 20, .nlmsg_seq = REQUEST},
		.msg = {.idiag_family = AF_INET,
			.idiag_state = 1,
			.idiag_inode = 4711,
			.id = {.idiag_sport = __builtin_bswap16(40000),
			       .idiag_dport = __builtin_bswap16(8000),
			       .idiag_src = {0x0100007f},
			       .idiag_dst = {0x0200007f},
			       .idiag_cookie = {1, 2}}},
		.other_head = {.nla_len = 8, .nla_type = INET_DIAG_TOS},
		.info_head = {.nla_len = sizeof(struct nlattr) + sizeof(struct tcp_info),
			      .nla_type = INET_DIAG_INFO},
		.info = {.tcpi_state = 1,
			 .tcpi_notsent_bytes = 7,
			 .tcpi_unacked = 1,
			 .tcpi_bytes_sent = 106,
			 .tcpi_bytes_acked = 100,
			 .tcpi_snd_mss = 1448,
			 .tcpi_snd_cwnd = 10,
			 .tcpi_snd_wnd = 65535,
			 .tcpi_min_rtt = 50,
			 .tcpi_last_data_sent = 30,
			 .tcpi_last_ack_recv = 44},
	};

	return a;
}

static int parse(const struct answer *a, struct told *told)
{
	memset(told, 0, sizeof(*told));
	return nt_diag_parse(a, sizeof(*a), REQUEST, take, told);
}

TEST(a_held_socket_is_told_with_what_the_kernel_knows)
{
	struct answer a = an_answer();
	struct told told;

	assert_int_equal(parse(&a, &told), 1);
	assert_int_equal(told.count, 1);
	assert_int_equal(told.last.reason, NT_HOLD_NAGLE);
	assert_int_equal(told.last.bytes, 7);
	assert_int_equal(told.last.in_flight_bytes, 6);
	assert_int_equal(told.last.mss, 1448);
	assert_int_equal(told.last.inode, 4711);
	assert_int_equal(told.last.silent_ns, 30000000);
	assert_int_equal(told.last.end.min_rtt_us, 50);
	assert_int_equal(told.last.end.sk, 1 | 2ULL << 32);
	assert_int_equal(told.last.end.tuple.family, AF_INET);
	assert_int_equal(told.last.end.tuple.local_port, 40000);
	assert_int_equal(told.last.end.tuple.remote_port, 8000);
	assert_memory_equal(told.last.end.tuple.local_addr, "\177\0\0\1\0\0\0\0", 8);
	assert_memory_equal(told.last.end.tuple.remote_addr, "\177\0\0\2", 4);
}

TEST(an_ipv4_mapped_address_is_ipv4)
{
	struct answer a = an_answer();
	struct told told;

	a.msg.idiag_family = AF_INET6;
	a.msg.id.idiag_src[2] = a.msg.id.idiag_dst[2] = 0xffff0000;
	a.msg.id.idiag_src[0] = a.msg.id.idiag_dst[0] = 0;
	a.msg.id.idiag_src[3] = 0x0100007f;
	a.msg.id.idiag_dst[3] = 0x0200007f;
	parse(&a, &told);
	assert_int_equal(told.last.end.tuple.family, AF_INET);
	assert_memory_equal(told.last.end.tuple.remote_addr, "\177\0\0\2\0\0\0\0", 8);
	a.msg.id.idiag_dst[0] = 1;
	parse(&a, &told);
	assert_int_equal(told.last.end.tuple.family, AF_INET6);
}

TEST(only_a_tail_smaller_than_a_segment_is_told)
{
	static const unsigned int bytes[] = {0, 1, 1447, 1448, 100000};
	struct told told;

	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		struct answer a = an_answer();

		a.info.tcpi_notsent_bytes = bytes[i];
		parse(&a, &told);
		assert_int_equal(told.count, bytes[i] == 1 || bytes[i] == 1447);
	}
}

static unsigned int reason_of(const struct answer *a)
{
	struct told told;

	parse(a, &told);
	return told.count ? told.last.reason : NT_HOLD_INVALID;
}

TEST(windows_are_asked_before_nagle)
{
	struct answer a = an_answer();

	a.info.tcpi_unacked = 10;
	assert_int_equal(reason_of(&a), NT_HOLD_CWND);
	a = an_answer();
	a.info.tcpi_snd_wnd = 12;
	assert_int_equal(reason_of(&a), NT_HOLD_RWND);
	a.info.tcpi_snd_wnd = 13;
	assert_int_equal(reason_of(&a), NT_HOLD_NAGLE);
	a.info.tcpi_snd_wnd = 0;
	assert_int_equal(reason_of(&a), NT_HOLD_RWND);
}

TEST(with_nothing_in_flight_it_is_no_nagle)
{
	struct answer a = an_answer();
	struct told told;

	a.info.tcpi_unacked = 0;
	a.info.tcpi_bytes_acked = 106;
	assert_int_equal(reason_of(&a), NT_HOLD_UNKNOWN);
	parse(&a, &told);
	assert_int_equal(told.last.in_flight_bytes, 0);
	assert_int_equal(told.last.untouched_ns, 0);
}

TEST(loss_is_noted)
{
	struct answer a = an_answer();
	struct told told;

	parse(&a, &told);
	assert_false(told.last.recovering);
	a.info.tcpi_ca_state = 3;
	parse(&a, &told);
	assert_true(told.last.recovering);
	a = an_answer();
	a.info.tcpi_retransmits = 1;
	parse(&a, &told);
	assert_true(told.last.recovering);
}

TEST(an_older_kernel_knows_less)
{
	struct answer a = an_answer();
	struct told told;

	/* as before 5.5: no window of the peer's */
	a.info.tcpi_snd_wnd = 0;
	a.info_head.nla_len = sizeof(struct nlattr) + offsetof(struct tcp_info, tcpi_snd_wnd);
	assert_int_equal(reason_of(&a), NT_HOLD_NAGLE);
	/* as before 4.19: no bytes sent */
	a.info.tcpi_bytes_sent = 0;
	a.info_head.nla_len = sizeof(struct nlattr) + offsetof(struct tcp_info, tcpi_bytes_sent);
	parse(&a, &told);
	assert_int_equal(told.last.reason, NT_HOLD_NAGLE);
	assert_int_equal(told.last.in_flight_bytes, 1);
	/* as before 4.6: no tail */
	a.info_head.nla_len = sizeof(struct nlattr) + offsetof(struct tcp_info, tcpi_notsent_bytes);
	parse(&a, &told);
	assert_int_equal(told.count, 0);
}

TEST(the_end_and_a_refusal_are_told)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
	} m = {.head = {.nlmsg_len = sizeof(m), .nlmsg_seq = REQUEST, .nlmsg_type = NLMSG_DONE}};
	struct told told = {};

	assert_int_equal(nt_diag_parse(&m, sizeof(m), REQUEST, take, &told), 0);
	m.error.error = -ENOENT; /* as where the kernel has no tcp_diag */
	assert_int_equal(nt_diag_parse(&m, sizeof(m), REQUEST, take, &told), -ENOENT);
	m.head.nlmsg_seq++; /* of an earlier request */
	assert_int_equal(nt_diag_parse(&m, sizeof(m), REQUEST, take, &told), 1);
	m.head.nlmsg_seq = REQUEST;
	m.head.nlmsg_type = NLMSG_ERROR;
	m.error.error = -ENOENT;
	assert_int_equal(nt_diag_parse(&m, sizeof(m), REQUEST, take, &told), -ENOENT);
	m.error.error = 5; /* no errno */
	assert_int_equal(nt_diag_parse(&m, sizeof(m), REQUEST, take, &told), -EPROTO);
	m.head.nlmsg_len = NLMSG_HDRLEN;
	assert_int_equal(nt_diag_parse(&m, NLMSG_HDRLEN, REQUEST, take, &told), -EPROTO);
	assert_int_equal(told.count, 0);
}

TEST(lengths_that_lie_are_refused)
{
	static const __u32 lengths[] = {0, 1, NLMSG_HDRLEN - 1, sizeof(struct answer) + 1, ~0U};
	static const __u16 attributes[] = {0, 1, 3, 9, 0xffff};
	struct told told;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct answer a = an_answer();

		a.head.nlmsg_len = lengths[i];
		assert_int_equal(parse(&a, &told), -EPROTO);
		assert_int_equal(told.count, 0);
	}
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		struct answer a = an_answer();

		a.info_head.nla_len = attributes[i] == 9 ? 2000 : attributes[i];
		a.other_head.nla_len = attributes[i];
		assert_int_equal(parse(&a, &told), 1);
		assert_int_equal(told.count, 0);
	}
}

UNIT_MAIN()
