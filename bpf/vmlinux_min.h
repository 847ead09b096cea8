/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel structures that nagletrace reads, each with the fields it reads and no other; CO-RE
 * finds them in the running kernel by name. Flavours (name___suffix) stand for fields that moved.
 */
#pragma once

#include <linux/errno.h>
#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

#define AF_INET          2
#define AF_INET6         10
#define AF_PACKET        17
#define AF_XDP           44
#define IPPROTO_TCP      6
#define IPPROTO_MPTCP    262
#define SOCK_STREAM      1
#define TCP_HEADER_BYTES 20 /* without options */
#define TCPHDR_FIN       0x01
#define TCPHDR_SYN       0x02
#define TCPHDR_RST       0x04
#define TCPHDR_ACK       0x10

/* The TCP header as it is on the wire. */
struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	u8 doff; /* in its upper half, words */
	u8 flags;
	__be16 window;
};

/* enum inet_csk_ack_state_t, include/net/inet_connection_sock.h */
#define ICSK_ACK_SCHED   1
#define ICSK_ACK_TIMER   2
#define ICSK_ACK_PUSHED  4
#define ICSK_ACK_PUSHED2 8

/* icsk_pending, include/net/inet_connection_sock.h */
#define ICSK_TIME_PROBE0     3
#define ICSK_TIME_LOSS_PROBE 5

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct timer_list {
	unsigned long expires;
	void (*function)(struct timer_list *);
};

struct ns_common {
	unsigned int inum;
};

struct netns_ipv4 {
	u8 sysctl_tcp_pingpong_thresh; /* 6.7, 562b1fdf061b */
	int sysctl_tcp_rto_min_us;     /* 6.11, f086edef71be */
};

struct list_head {
	struct list_head *next;
};

struct net {
	struct list_head list; /* of all namespaces, in net_namespace_list */
	struct ns_common ns;
	u32 hash_mix; /* random, of each namespace */
	struct netns_ipv4 ipv4;
};

struct net_device;

struct dst_entry {
	struct net_device *dev;
	unsigned long _metrics;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	unsigned int skc_hash;
	__be16 skc_dport;
	u16 skc_num;
	unsigned short skc_family;
	unsigned char skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	char cb[48];
	u16 transport_header;
	u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct sk_buff_head {
	struct sk_buff *next;
	__u32 qlen;
};

typedef struct {
	int owned;
} socket_lock_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

typedef struct {
	u32 val;
} kuid_t;

struct kernfs_node {
	struct kernfs_node *parent;
	struct kernfs_node *__parent; /* from 6.15 on */
	const char *name;
	u64 id;
};

struct cgroup;

struct cgroup {
	int level; /* 0: the root's */
	struct kernfs_node *kn;
	struct cgroup *ancestors[1]; /* and itself, by level */
	u64 ancestor_ids[1];         /* until 6.0: their numbers, kn->id */
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
	/* until 5.16: the pointer with flags in its two lowest bits, of which 1 says that it is
	 * none */
	u64 val;
};

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct sock {
	struct sock_common __sk_common;
	kuid_t sk_uid;
	struct sock_cgroup_data sk_cgrp_data;
	socket_lock_t sk_lock;
	refcount_t sk_wmem_alloc; /* SK_WMEM_ALLOC_BIAS and bytes in the queues below */
	unsigned long sk_tsq_flags;
	struct rb_root tcp_rtx_queue; /* buffers in flight */
	struct sk_buff_head sk_write_queue;
	u32 sk_pacing_status;
	int sk_wmem_queued;
	int sk_sndbuf;
	int sk_write_pending;        /* writers asleep for room */
	unsigned long sk_lingertime; /* jiffies */
	struct dst_entry *sk_dst_cache;
	u16 sk_protocol;
	u16 sk_type;
	struct socket *sk_socket;
	struct socket_wq *sk_wq;
	u8 sk_kern_sock : 1;
	void (*sk_data_ready)(struct sock *sk);
	struct timer_list tcp_retransmit_timer; /* from 7.0 on here */
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport; /* stays when the port is given back, skc_num does not */
};

struct tcp_ulp_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct timer_list icsk_retransmit_timer;
	struct timer_list icsk_delack_timer;
	__u32 icsk_rto; /* jiffies */
	__u32 icsk_rto_min;
	__u32 icsk_delack_max;
	const struct tcp_ulp_ops *icsk_ulp_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
	struct {
		__u8 pending;
		__u8 quick;
		__u8 pingpong;
		__u16 rcv_mss;
		__u32 lrcvtime; /* jiffies: when data came last */
	} icsk_ack;
};

/* Until 6.17 the timers could fire early and go back to sleep until this time (jiffies). */
struct inet_connection_sock___timeout {
	unsigned long icsk_timeout;
};

struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

/* The segment that was acknowledged last, with SACK. */
struct tcp_rack {
	u64 mstamp; /* us: when it was sent */
	u32 rtt_us;
	u32 end_seq;
};

struct tcp_options_received {
	u32 ts_recent;
	u16 tstamp_ok : 1;
	u16 snd_wscale : 4;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 data_segs_out;
	u32 segs_in;
	u32 data_segs_in;
	u32 rcv_nxt;
	u32 copied_seq;
	u32 rcv_wup;
	u32 rcv_wnd;
	u32 snd_nxt;
	u32 snd_una;
	u32 snd_sml;
	u32 high_seq;
	u32 srtt_us;    /* times 8 */
	u32 lsndtime;   /* jiffies: when data was sent last */
	u32 rcv_tstamp; /* jiffies: when an ACK came last */
	u64 tcp_wstamp_ns;
	u64 tcp_clock_cache;
	u32 snd_wnd;
	u32 mss_cache;
	u16 advmss;
	u8 nonagle : 4;
	u32 packets_out;
	u32 retrans_out;
	u32 snd_up;
	u32 snd_cwnd;
	u32 write_seq;
	u32 pushed_seq; /* write_seq when a push was asked for last; tcp_mark_push() */
	u32 lost_out;
	u32 sacked_out;
	u32 total_retrans;
	u32 tlp_high_seq; /* snd_nxt after a loss probe, until that is acknowledged; else 0 */
	struct minmax rtt_min;
	struct tcp_options_received rx_opt;
	u32 tsoffset;
	struct tcp_rack rack;
	u64 first_tx_mstamp;  /* us: when the flight began, or what was acknowledged last went */
	u64 delivered_mstamp; /* us: when something was acknowledged last, or the flight began */
	u8 is_mptcp;
};

/* From 6.7 a route can ask for timestamps in microseconds. */
struct tcp_sock___usec {
	u8 tcp_usec_ts : 1;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u8 tcp_flags; /* __u16 from 6.17; the low byte is the same on little endian */
	__u32 ack_seq;
};

struct msghdr;

struct css_set {
	struct cgroup *dfl_cgrp; /* the one of cgroup v2 */
};

struct cgroup_namespace {
	struct css_set *root_cset;
};

struct nsproxy {
	struct net *net_ns;
	struct cgroup_namespace *cgroup_ns;
};

struct fdtable {
	unsigned long *close_on_exec;
};

struct files_struct {
	struct fdtable *fdt;
};

struct signal_struct {
	atomic_t live; /* threads */
};

struct task_struct {
	unsigned int flags;
	u32 pid;
	u32 tgid;
	u64 start_time;
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_struct *group_leader;
	u64 parent_exec_id; /* copied at a fork from the parent's own */
	u64 self_exec_id;
	struct nsproxy *nsproxy;
	char comm[16];
};

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct socket {
	unsigned long flags;
	struct file *file;
	struct sock *sk;
};

struct wait_queue_head {
	struct list_head head;
};

struct wait_queue_entry {
	void *private; /* what it is depends on who waits */
	struct list_head entry;
};

struct socket_wq {
	struct wait_queue_head wait;
};

struct poll_table_entry {
	u32 key; /* what it polls for */
	struct wait_queue_entry wait;
};

struct poll_wqueues {
	struct task_struct *polling_task;
};

struct eppoll_entry {
	struct epitem *base;
	struct wait_queue_entry wait;
};

struct epoll_event {
	u32 events;
};

struct epitem {
	struct eventpoll *ep;
	struct epoll_event event;
};

struct eventpoll {
	struct wait_queue_head wq;
};

struct mptcp_sock {
	struct list_head conn_list;
	struct sock *first;
};

struct mptcp_subflow_context {
	struct list_head node;
	struct sock *tcp_sock;
};

struct bpf_iter_meta;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_prog_aux {
	char name[16]; /* BPF_OBJ_NAME_LEN */
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 seq_num;
};

#pragma clang attribute pop
