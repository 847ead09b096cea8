/* SPDX-License-Identifier: GPL-2.0 */
/* Whose sockets: the program that lists the owners of all TCP sockets, part of both objects. */
#pragma once

#include "socket.h"

/*
 * A process may have thousands of descriptors of one socket, which somebody makes on purpose. A
 * look at all descriptors lists a socket and its process once, as far as this table remembers,
 * by a hash of the socket's address.
 */
struct listed_owner {
	u64 socket;
	u32 tgid;
	u32 look; /* the number of the look at all descriptors: the next one lists it again */
};

#define LISTED_OWNERS 4096

static struct listed_owner listed_owners[LISTED_OWNERS];
__u32 owners_look; /* user space sets it, from 1 on */

static __always_inline bool was_listed(u64 socket, u32 tgid)
{
	/* sockets lie at multiples of 64 and more */
	u32 place = ((u32)(socket >> 6) * 0x9e3779b1U) >> 20;
	struct listed_owner *listed;

	barrier_var(place);
	if (place >= LISTED_OWNERS)
		return false;
	listed = &listed_owners[place];
	if (listed->socket == socket && listed->tgid == tgid && listed->look == owners_look)
		return true;
	listed->socket = socket;
	listed->tgid = tgid;
	listed->look = owners_look;
	return false;
}

/*
 * A read of the iterator returns once a piece is written, or after a million steps, which takes a
 * second. The program makes it return after fewer, so that user space can do other things in
 * between.
 */
#define STEPS_AT_ONCE 4096

static u32 owners_steps;
static const u8 no_owners[NT_PIECE(sizeof(struct nt_owner))];

/* Returns the socket behind a file, or NULL. */
static __always_inline struct socket *file_socket(struct file *file)
{
	const u16 type_mask = 0170000, socket_type = 0140000; /* S_IFMT, S_IFSOCK */

	if (!file || (file->f_inode->i_mode & type_mask) != socket_type)
		return NULL;
	/* this gives a number, which a plain load of it does not everywhere */
	return BPF_CORE_READ(file, private_data);
}

/* Is it an internet socket of this protocol? */
static __always_inline bool is_socket_of(const struct sock *sk, u16 protocol)
{
	u16 family;

	if (!sk || BPF_CORE_READ(sk, sk_protocol) != protocol)
		return false;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	return family == AF_INET || family == AF_INET6;
}

/* Only a report of some processes says this of theirs: everywhere somebody looks at packets. */
static __always_inline u32 untraced_kind(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (const void *)sk;
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	char ulp[4] = {};

	if (family == AF_PACKET || family == AF_XDP)
		return NT_UNTRACED_PACKETS;
	if (is_socket_of(sk, IPPROTO_TCP))
		BPF_CORE_READ_STR_INTO(&ulp, icsk, icsk_ulp_ops, name);
	return ulp[0] == 't' && ulp[1] == 'l' && ulp[2] == 's' ? NT_UNTRACED_KTLS : NT_TRACED;
}

#define PF_FORKNOEXEC 0x40 /* include/linux/sched.h */

/* A child that is on its way to an exec gets there in this time, on a busy machine too. */
#define TO_EXEC_NS 100000000ULL

/*
 * Is the process a child on its way to an exec, which closes this descriptor? begin_new_exec(),
 * fs/exec.c, takes PF_FORKNOEXEC away, do_close_on_exec() then the bits of all descriptors before
 * it closes the first, and self_exec_id counts the exec when that is done. In between, a descriptor
 * that is there may be about to go.
 */
static __always_inline bool is_passing(struct task_struct *task, u32 fd)
{
	const struct task_struct *leader = task->group_leader;
	const unsigned long *close_on_exec;
	unsigned long word = 0;

	if (leader->self_exec_id != leader->parent_exec_id ||
	    bpf_ktime_get_ns() - leader->start_time > TO_EXEC_NS)
		return false;
	if (!(leader->flags & PF_FORKNOEXEC))
		return true;
	close_on_exec = BPF_CORE_READ(task, files, fdt, close_on_exec);
	bpf_probe_read_kernel(&word, sizeof(word), close_on_exec + fd / 64);
	return word >> fd % 64 & 1;
}

static __always_inline struct kernfs_node *parent_of(struct kernfs_node *node)
{
	if (bpf_core_field_exists(node->parent))
		return BPF_CORE_READ(node, parent);
	return BPF_CORE_READ(node, __parent);
}

struct nt_cgroup_root cgroup_root;

/* Mirrors kernfs_path_from_node(), fs/kernfs/dir.c, from the root on. */
static __always_inline void read_cgroup_root(void)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	const struct css_set *root;
	struct kernfs_node *node, *parent;
	u32 level = 0;

	if (!bpf_core_field_exists(((struct css_set *)0)->dfl_cgrp))
		return;
	root = BPF_CORE_READ(reader, nsproxy, cgroup_ns, root_cset);
	node = BPF_CORE_READ(root, dfl_cgrp, kn);
	for (; level < NT_CGROUP_LEVELS; level++) {
		parent = parent_of(node);
		if (!parent)
			break;
		bpf_probe_read_kernel_str(cgroup_root.names[level], NT_CGROUP_NAME,
					  BPF_CORE_READ(node, name));
		node = parent;
	}
	cgroup_root.levels = level;
	cgroup_root.known = node && !parent_of(node);
}

static __always_inline void list_owner(struct seq_file *seq, struct nt_owner *owner,
				       const struct sock *sk)
{
	owner->sk = (u64)sk;
	owner->share = socket_share(sk);
	read_tuple(&owner->tuple, sk);
	bpf_seq_write(seq, owner, sizeof(*owner));
}

/* The most subflows, which are TCP sockets, that are listed of an open MPTCP socket. */
#define MOST_SUBFLOWS 8

static __always_inline void list_subflows(struct seq_file *seq, struct nt_owner *owner,
					  const struct sock *sk)
{
	const struct mptcp_sock *outer = (const void *)sk;
	u64 end = (u64)outer + bpf_core_field_offset(struct mptcp_sock, conn_list);
	u64 node = (u64)BPF_CORE_READ(outer, conn_list.next);

	for (int i = 0; i < MOST_SUBFLOWS && node && node != end; i++) {
		const struct mptcp_subflow_context *subflow =
			(void *)node - bpf_core_field_offset(struct mptcp_subflow_context, node);
		const struct sock *inner = BPF_CORE_READ(subflow, tcp_sock);

		if (is_socket_of(inner, IPPROTO_TCP))
			list_owner(seq, owner, inner);
		node = (u64)BPF_CORE_READ(subflow, node.next);
	}
}

SEC("iter/task_file")
int dump_owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct nt_owner owner = {};
	struct socket *socket;
	struct sock *sk;
	bool mptcp;

	if (!ctx->meta->seq_num && !cgroup_root.known)
		read_cgroup_root();
	if (!(++owners_steps % STEPS_AT_ONCE))
		bpf_seq_write(ctx->meta->seq, no_owners, sizeof(no_owners));
	if (!task)
		return 0;
	socket = file_socket(ctx->file);
	if (!socket || was_listed((u64)socket, task->tgid))
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	mptcp = bpf_core_field_exists(((struct mptcp_sock *)0)->first) &&
		is_socket_of(sk, IPPROTO_MPTCP);
	owner.tgid = task->tgid;
	if (nt_config.target != NT_TARGET_ALL)
		owner.untraced = untraced_kind(sk);
	if (owner.untraced == NT_UNTRACED_PACKETS)
		bpf_seq_write(ctx->meta->seq, &owner, sizeof(owner));
	if (!mptcp && !is_socket_of(sk, IPPROTO_TCP))
		return 0;
	owner.tid = task->pid;
	owner.fd = ctx->fd;
	owner.passing = is_passing(task, ctx->fd);
	if (mptcp)
		list_subflows(ctx->meta->seq, &owner, sk);
	else
		list_owner(ctx->meta->seq, &owner, sk);
	return 0;
}
