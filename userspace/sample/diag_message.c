// SPDX-License-Identifier: GPL-2.0
#include "sample/diag_message.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "bpf/verdict.h"

#define CA_RECOVERY 3 /* TCP_CA_Recovery: from here on, loss is being recovered from */
#define MS          1000000ULL

static void read_tuple(const struct inet_diag_msg *msg, struct nt_tuple *tuple)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	const void *local = msg->id.idiag_src, *remote = msg->id.idiag_dst;
	size_t bytes = msg->idiag_family == AF_INET ? 4 : 16;

	tuple->family = msg->idiag_family;
	if (bytes == 16 && !memcmp(remote, mapped, sizeof(mapped))) {
		tuple->family = AF_INET;
		bytes = 4;
		local = &msg->id.idiag_src[3];
		remote = &msg->id.idiag_dst[3];
	}
	memcpy(tuple->local_addr, local, bytes);
	memcpy(tuple->remote_addr, remote, bytes);
	tuple->local_port = ntohs(msg->id.idiag_sport);
	tuple->remote_port = ntohs(msg->id.idiag_dport);
}

/* The SYN counts among what was acknowledged, at the end that sent it, and not among what was
 * sent. */
static __u32 in_flight_bytes(const struct tcp_info *info)
{
	__u64 sent = info->tcpi_bytes_sent - info->tcpi_bytes_retrans;

	if (!info->tcpi_unacked)
		return 0;
	/* before 4.19 the kernel does not say */
	if (!info->tcpi_bytes_sent || sent <= info->tcpi_bytes_acked)
		return info->tcpi_unacked < 2 ? 1 : info->tcpi_unacked * info->tcpi_snd_mss;
	return sent - info->tcpi_bytes_acked;
}

/*
 * Why is the tail held? The question is the tracer's (bpf/verdict.h), but three of its facts are
 * not shown: the options TCP_NODELAY and TCP_CORK, and whether the segment in flight was a small
 * one. So "nagle" is what is left when the windows, the queue below and loss do not explain it; and
 * with nothing in flight, only a cork or MSG_MORE does: UNKNOWN.
 */
static enum nt_hold_reason reason_of(const struct tcp_info *info, __u32 in_flight,
				     bool knows_window)
{
	struct nt_tcp_state s = {
		.snd_nxt = in_flight,
		.snd_sml = in_flight,
		.snd_wnd = knows_window ? info->tcpi_snd_wnd : INT32_MAX / 2,
		.snd_cwnd = info->tcpi_snd_cwnd,
		.write_seq = in_flight + info->tcpi_notsent_bytes,
		.packets_out = info->tcpi_unacked,
		.left_out = info->tcpi_sacked + info->tcpi_lost,
		.retrans_out = info->tcpi_retrans,
		.mss = info->tcpi_snd_mss,
		.head_seq = in_flight,
		.head_end_seq = in_flight + info->tcpi_notsent_bytes,
		.head_len = info->tcpi_notsent_bytes,
		.has_head = true,
		.head_last = true,
	};

	return nt_verdict(&s);
}

static void take_info(const struct inet_diag_msg *msg, const struct tcp_info *info,
		      bool knows_window, nt_sampled_take *take, void *context)
{
	struct nt_sampled sampled = {
		.inode = msg->idiag_inode,
		.bytes = info->tcpi_notsent_bytes,
		.mss = info->tcpi_snd_mss,
		.data_came = info->tcpi_data_segs_in,
		.acks_came = info->tcpi_segs_in - info->tcpi_data_segs_in,
		.recovering = info->tcpi_ca_state >= CA_RECOVERY || info->tcpi_retransmits ||
			      info->tcpi_lost || info->tcpi_retrans,
	};
	__u32 silent_ms = info->tcpi_last_data_sent < info->tcpi_last_ack_recv
				  ? info->tcpi_last_data_sent
				  : info->tcpi_last_ack_recv;

	if (!sampled.bytes || sampled.bytes >= sampled.mss)
		return;
	sampled.in_flight_bytes = in_flight_bytes(info);
	/* with nothing in flight, the tail may be much younger than what was sent last */
	sampled.silent_ns = silent_ms * MS;
	sampled.untouched_ns = sampled.in_flight_bytes ? sampled.silent_ns : 0;
	sampled.reason = reason_of(info, sampled.in_flight_bytes, knows_window);
	if (!sampled.reason)
		return;
	sampled.end.present = 1;
	sampled.end.sk = (__u64)msg->id.idiag_cookie[1] << 32 | msg->id.idiag_cookie[0];
	sampled.end.min_rtt_us = info->tcpi_min_rtt == UINT32_MAX ? 0 : info->tcpi_min_rtt;
	read_tuple(msg, &sampled.end.tuple);
	take(context, &sampled);
}

/* Takes the socket's tcp_info, of this kernel's length, as far as we know its fields. */
static void take_socket(const void *data, size_t length, nt_sampled_take *take, void *context)
{
	const struct inet_diag_msg *msg = data;
	struct tcp_info info = {};
	size_t at = NLMSG_ALIGN(sizeof(*msg));

	if (length < sizeof(*msg) ||
	    (msg->idiag_family != AF_INET && msg->idiag_family != AF_INET6))
		return;
	while (at < length && length - at >= sizeof(struct nlattr)) {
		const struct nlattr *attr = (const void *)((const char *)data + at);
		size_t size = attr->nla_len;

		if (size < sizeof(*attr) || size > length - at)
			return;
		if ((attr->nla_type & NLA_TYPE_MASK) == INET_DIAG_INFO) {
			size -= sizeof(*attr);
			memcpy(&info, attr + 1, size < sizeof(info) ? size : sizeof(info));
			/* since 5.5 */
			take_info(msg, &info, size >= offsetof(struct tcp_info, tcpi_snd_wnd) + 4,
				  take, context);
			return;
		}
		at += NLA_ALIGN(size);
	}
}

static int error_of(const struct nlmsghdr *message)
{
	const struct nlmsgerr *error = NLMSG_DATA(message);

	if (message->nlmsg_len < NLMSG_LENGTH(sizeof(error->error)))
		return -EPROTO;
	return error->error < 0 && error->error >= -4095 ? error->error : -EPROTO;
}

/* Is it the end of a dump that the kernel broke off? netlink_dump_done(), net/netlink. */
static bool is_failed_dump(const struct nlmsghdr *message)
{
	return message->nlmsg_type == NLMSG_DONE &&
	       message->nlmsg_len >= NLMSG_LENGTH(sizeof(int)) &&
	       *(const int *)NLMSG_DATA(message) < 0;
}

int nt_diag_parse(const void *datagram, size_t length, __u32 request, nt_sampled_take *take,
		  void *context)
{
	size_t at = 0;

	while (at < length) {
		const struct nlmsghdr *message = (const void *)((const char *)datagram + at);

		if (length - at < sizeof(*message) || message->nlmsg_len < sizeof(*message) ||
		    message->nlmsg_len > length - at)
			return -EPROTO;
		if (message->nlmsg_seq == request) {
			if (message->nlmsg_type == NLMSG_ERROR || is_failed_dump(message))
				return error_of(message);
			if (message->nlmsg_type == NLMSG_DONE)
				return 0;
			take_socket(NLMSG_DATA(message), message->nlmsg_len - NLMSG_HDRLEN, take,
				    context);
		}
		at += NLMSG_ALIGN(message->nlmsg_len);
	}
	return 1;
}
