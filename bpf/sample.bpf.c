// SPDX-License-Identifier: GPL-2.0
/*
 * Looks at TCP sockets with no hook attached, and lists those that hold bytes back just now: by one
 * program those of a network namespace, by another those that processes have open. This is an
 * object of its own, since it loads in a fraction of the time that the tracer takes.
 */
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "config.h"

/* Most verifiers let these programs load from sockets directly. */
const volatile __u8 direct;
#define NT_DIRECT direct
#include "list_owners.h"
#include "judge.h"

char LICENSE[] SEC("license") = "GPL";

#define TCP_ESTABLISHED 1
#define TCP_CLOSE_WAIT  8

/*
 * The kernel counts this silence in ticks, which would make all looks between two limits fall on
 * one side of them. Spread over the tick, they are right in the mean.
 */
static __always_inline u64 spread(u64 silent_ns)
{
	__s64 ns = silent_ns + bpf_get_prandom_u32() % nt_config.tick_ns - nt_config.tick_ns / 2;

	return ns > 0 ? ns : 0;
}

/* tgid: a process that has the socket open; 0: not known */
static __always_inline void list_held(struct seq_file *seq, const struct tcp *t, u32 tgid,
				      const bool trusted)
{
	struct nt_sampled sampled = {.time_ns = bpf_ktime_get_ns()};
	struct nt_tcp_state s;
	u64 sent_ns, came_ns;

	tcp_read_state(&s, t, trusted);
	sampled.bytes = s.write_seq - s.snd_nxt;
	sampled.in_flight_bytes = s.snd_nxt - s.snd_una;
	sampled.mss = s.mss;
	sampled.recovering = PROBED(t->tp, lost_out) || s.retrans_out;
	sampled.data_came = TCP(t, data_segs_in);
	sampled.acks_came = TCP(t, segs_in) - sampled.data_came;
	sent_ns = since_jiffies(TCP(t, lsndtime));
	came_ns = since_jiffies(TCP(t, rcv_tstamp));
	sampled.silent_ns = spread(sent_ns < came_ns ? sent_ns : came_ns);
	if (sampled.time_ns > s.clock_ns)
		sampled.untouched_ns = sampled.time_ns - s.clock_ns;
	/* nobody saw the attempt, so the last one counts as the last write's */
	sampled.reason = nt_verdict_from_state(&s, true, sampled.time_ns);
	if (!sampled.reason || (!nt_config.all_holds && !nt_may_stall(sampled.reason, false)))
		return;
	read_end(&sampled.end, t);
	sampled.end.tgid = tgid;
	bpf_seq_write(seq, &sampled, sizeof(sampled));
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
		list_held(ctx->meta->seq, &t, 0, trusted);
	return 0;
}

static u32 held_steps;
static const u8 no_held[NT_PIECE(sizeof(struct nt_sampled))];

/*
 * Finds the same sockets where processes have them open, in all network namespaces, which nobody
 * has to enter. A walk over descriptors takes less than one over the kernel's table of connections,
 * which is large even where there are few. A socket that is orphaned is nobody's, and not found.
 */
SEC("iter/task_file")
int dump_held_open(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct socket *socket;
	const struct sock *sk;
	struct tcp t;
	u8 state;

	if (!(++held_steps % STEPS_AT_ONCE))
		bpf_seq_write(ctx->meta->seq, no_held, sizeof(no_held));
	if (!task)
		return 0;
	socket = file_socket(ctx->file);
	if (!socket)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	/* nearly all are done here, before the walk has touched much of their memory */
	if (!sk || !BPF_CORE_READ(sk, sk_write_queue.qlen) || !is_socket_of(sk, IPPROTO_TCP))
		return 0;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return 0;
	t = tcp_of((struct sock *)sk, false);
	/* of several descriptors the first lists it */
	if (PROBED(t.tp, write_seq) != PROBED(t.tp, snd_nxt) && !was_listed((u64)socket, 0))
		list_held(ctx->meta->seq, &t, task->tgid, false);
	return 0;
}
