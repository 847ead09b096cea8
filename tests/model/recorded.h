/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A recording holds a header, then a snapshot for each time that the kernel reached a hook of
 * nagletrace. recorder.bpf.c takes the snapshots, and test_recorded.c replays them to the programs.
 */
#pragma once

#define RECORDED_MAGIC "ntrec 1"

enum recorded_program {
	RECORDED_PROBE,
	RECORDED_RESET,
	RECORDED_DESTROY,
	RECORDED_SEND_LENGTH,
	RECORDED_TIMER_START,
	RECORDED_TIMER_EXPIRE,
	RECORDED_WRITE_XMIT,
	RECORDED_SENDMSG,
	RECORDED_SEND_DELAYED_ACK,
	RECORDED_DELACK_HANDLER,
	RECORDED_TRANSMIT,
	RECORDED_WRITE_WAKEUP,
	RECORDED_PROGRAMS,
};

enum recorded_timer {
	RECORDED_NO_TIMER,
	RECORDED_DELACK_TIMER,
	RECORDED_WRITE_TIMER,
};

#define RSOCK  inet_conn.icsk_inet.sk
#define RNAMED RSOCK.__sk_common

/* The programs read these fields of struct tcp_sock: PLAIN, BITS, and MAYBE, which some kernels
 * lack (the programs test for them, and otherwise use the last argument). */
#define RECORDED_FIELDS(PLAIN, BITS, MAYBE)                                                     \
	PLAIN(u64, delack_expires, inet_conn.icsk_delack_timer.expires)                         \
	PLAIN(u64, tsq_flags, RSOCK.sk_tsq_flags)                                               \
	PLAIN(u64, wstamp_ns, tcp_wstamp_ns)                                                    \
	PLAIN(u64, clock_ns, tcp_clock_cache)                                                   \
	PLAIN(u32, daddr, RNAMED.skc_daddr)                                                     \
	PLAIN(u32, saddr, RNAMED.skc_rcv_saddr)                                                 \
	PLAIN(u32, hash, RNAMED.skc_hash)                                                       \
	PLAIN(u32, owned, RSOCK.sk_lock.owned)                                                  \
	PLAIN(u32, wmem, RSOCK.sk_wmem_alloc.refs.counter)                                      \
	PLAIN(u32, queued, RSOCK.sk_write_queue.qlen)                                           \
	PLAIN(u32, pacing_status, RSOCK.sk_pacing_status)                                       \
	MAYBE(u32, rto_min, inet_conn.icsk_rto_min, ~0U)                                        \
	MAYBE(u32, delack_max, inet_conn.icsk_delack_max, ~0U)                                  \
	PLAIN(u32, lrcvtime, inet_conn.icsk_ack.lrcvtime)                                       \
	PLAIN(u32, data_segs_out, data_segs_out)                                                \
	PLAIN(u32, data_segs_in, data_segs_in)                                                  \
	PLAIN(u32, rcv_nxt, rcv_nxt)                                                            \
	PLAIN(u32, copied_seq, copied_seq)                                                      \
	PLAIN(u32, rcv_wup, rcv_wup)                                                            \
	PLAIN(u32, rcv_wnd, rcv_wnd)                                                            \
	PLAIN(u32, snd_nxt, snd_nxt)                                                            \
	PLAIN(u32, snd_una, snd_una)                                                            \
	PLAIN(u32, snd_sml, snd_sml)                                                            \
	PLAIN(u32, high_seq, high_seq)                                                          \
	PLAIN(u32, srtt_us, srtt_us)                                                            \
	PLAIN(u32, lsndtime, lsndtime)                                                          \
	PLAIN(u32, snd_wnd, snd_wnd)                                                            \
	PLAIN(u32, mss_cache, mss_cache)                                                        \
	PLAIN(u32, packets_out, packets_out)                                                    \
	PLAIN(u32, retrans_out, retrans_out)                                                    \
	PLAIN(u32, snd_up, snd_up)                                                              \
	PLAIN(u32, snd_cwnd, snd_cwnd)                                                          \
	PLAIN(u32, write_seq, write_seq)                                                        \
	PLAIN(u32, pushed_seq, pushed_seq)                                                      \
	PLAIN(u32, lost_out, lost_out)                                                          \
	PLAIN(u32, sacked_out, sacked_out)                                                      \
	PLAIN(u32, total_retrans, total_retrans)                                                \
	PLAIN(u32, tlp_high_seq, tlp_high_seq)                                                  \
	PLAIN(u32, min_rtt, rtt_min.s[0].v)                                                     \
	PLAIN(u32, ts_recent, rx_opt.ts_recent)                                                 \
	PLAIN(u32, tsoffset, tsoffset)                                                          \
	PLAIN(u16, family, RNAMED.skc_family)                                                   \
	PLAIN(u16, port, RNAMED.skc_num)                                                        \
	PLAIN(u16, dport, RNAMED.skc_dport)                                                     \
	PLAIN(u16, sport, inet_conn.icsk_inet.inet_sport)                                       \
	PLAIN(u16, protocol, RSOCK.sk_protocol)                                                 \
	PLAIN(u16, type, RSOCK.sk_type)                                                         \
	PLAIN(u16, advmss, advmss)                                                              \
	PLAIN(u8, state, RNAMED.skc_state)                                                      \
	PLAIN(u8, icsk_pending, inet_conn.icsk_pending)                                         \
	PLAIN(u8, ack_pending, inet_conn.icsk_ack.pending)                                      \
	PLAIN(u8, quick, inet_conn.icsk_ack.quick)                                              \
	PLAIN(u8, pingpong, inet_conn.icsk_ack.pingpong)                                        \
	BITS(u8, ca_state, inet_conn, icsk_ca_state)                                            \
	BITS(u8, tstamp_ok, rx_opt, tstamp_ok)                                                  \
	BITS(u8, snd_wscale, rx_opt, snd_wscale)

struct recorded_segment {
	u32 seq, end_seq, ack, len;
	u8 flags, there, last;
	u8 reserved;
};

#define RECORDED_HEADER_BYTES 32

struct recorded {
	u64 ns, jiffies, sk, pid_tgid;
	u32 netns, cpu;
	u32 route_locked, route_rto_min; /* the route's, as tcp_delack_max() asks for them */
	u32 mss, rcv_nxt_argument;       /* arguments */
	s32 nonagle_argument, push_one, ret;
	struct recorded_segment head; /* of the write queue */
	struct recorded_segment skb;  /* an argument, and its first bytes */
	u8 header[RECORDED_HEADER_BYTES];
	u8 program; /* enum recorded_program */
	u8 timer;   /* enum recorded_timer */
	u8 thresh;  /* net.ipv4.tcp_pingpong_thresh */
	u8 nonagle;
#define RECORDED_MEMBER(type, name, ...) type name;
	RECORDED_FIELDS(RECORDED_MEMBER, RECORDED_MEMBER, RECORDED_MEMBER)
#undef RECORDED_MEMBER
} __attribute__((aligned(8)));

struct recorded_header {
	char magic[8];
	char release[64];
	char family[16];
	u64 tick_ns;
	u32 header_bytes, snapshot_bytes;
	u32 delack_by_rto_min;
	u32 dropped; /* dropped or skipped snapshots; must be 0 */
	u32 count;
	u32 reserved;
};
