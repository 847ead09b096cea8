// SPDX-License-Identifier: GPL-2.0
/*
 * Looks at all TCP sockets of a network namespace, with no hook attached, and tells those that hold
 * bytes back just now. This is an object of its own, since it loads in a fraction of the time that
 * the tracer takes.
 */
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "list_owners.h"
#include "judge.h"

char LICENSE[] SEC("license") = "GPL";

#define TCP_ESTABLISHED 1
#define TCP_CLOSE_WAIT  8

static __always_inline u64 since_jiffies(u32 jiffies)
{
	return (u32)((u32)bpf_jiffies64() - jiffies) * nt_config.tick_ns;
}

static __always_inline void tell_held(struct seq_file *seq, const struct tcp *t, const bool trusted)
{
	struct nt_sampled told = {.time_ns = bpf_ktime_get_ns()};
	struct nt_tcp_state s;
	u64 sent_ns, came_ns;

	tcp_read_state(&s, t, trusted);
	told.bytes = s.write_seq - s.snd_nxt;
	told.in_flight_bytes = s.snd_nxt - s.snd_una;
	told.mss = s.mss;
	told.recovering = s.lost_out || s.retrans_out;
	sent_ns = since_jiffies(TCP(t, lsndtime));
	came_ns = since_jiffies(TCP(t, rcv_tstamp));
	told.silent_ns = sent_ns < came_ns ? sent_ns : came_ns;
	if (told.time_ns > s.clock_ns)
		told.untouched_ns = told.time_ns - s.clock_ns;
	/* nobody saw the attempt, so the last one counts as the last write's */
	told.reason = nt_verdict_from_state(&s, true, told.time_ns);
	if (!told.reason || (!nt_config.all_holds && !nt_may_stall(told.reason)))
		return;
	read_end(&told.end, t);
	bpf_seq_write(seq, &told, sizeof(told));
}

SEC("iter/tcp")
int dump_held(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	const bool trusted = true;
	struct tcp t;

	/* others have no struct tcp_sock: time-wait, and connections that are being accepted */
	if (!common ||
	    (common->skc_state != TCP_ESTABLISHED && common->skc_state != TCP_CLOSE_WAIT))
		return 0;
	t = tcp_of((struct sock *)common, trusted);
	if (!t.tp)
		return 0;
	t.sk = (struct sock *)t.tp; /* the verifier knows the other as a struct sock_common */
	if (TCP(&t, write_seq) != TCP(&t, snd_nxt))
		tell_held(ctx->meta->seq, &t, trusted);
	return 0;
}
