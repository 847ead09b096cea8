/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who writes what is held, and who reads where an ACK is pending: a stall is over in a softirq,
 * whose task says nothing.
 */
#pragma once

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy___mounts {
	struct mnt_namespace *mnt_ns;
};

struct task_struct___family {
	struct task_struct *real_parent;
	struct nsproxy___mounts *nsproxy;
};

#pragma clang attribute pop

/* By the process that wrote; the least recently used give way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct gadget_process);
} writers SEC(".maps");

/* By the socket's address, which is another one's after it: what a stall shows read there last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct gadget_process);
} readers SEC(".maps");

static __always_inline void read_process(struct gadget_process *p)
{
	struct task_struct___family *task = (void *)bpf_get_current_task();
	u64 pid_tgid = bpf_get_current_pid_tgid(), uid_gid = bpf_get_current_uid_gid();
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);

	__builtin_memset(p, 0, sizeof(*p));
	p->pid = pid_tgid >> 32;
	p->tid = (u32)pid_tgid;
	p->mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	p->creds.uid = (u32)uid_gid;
	p->creds.gid = uid_gid >> 32;
	p->parent.pid = BPF_CORE_READ(parent, tgid);
	BPF_CORE_READ_STR_INTO(&p->parent.comm, parent, comm);
	BPF_CORE_READ_STR_INTO(&p->comm, (struct task_struct *)task, group_leader, comm);
}

/* bpf/hold.h asks read_writer() at the first write of each hold. */
#define read_writer read_writer_of_hold
#include "filter.h"
#undef read_writer

static __always_inline void read_writer(struct writer *w)
{
	struct gadget_process p;

	read_writer_of_hold(w);
	read_process(&p);
	bpf_map_update_elem(&writers, &w->tgid, &p, BPF_ANY);
}

static __always_inline void note_reader(struct sock *sk)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gadget_process p, *known;
	u64 key = (u64)sk;

	known = bpf_map_lookup_elem(&readers, &key);
	if (known && known->pid == tgid)
		return;
	read_process(&p);
	bpf_map_update_elem(&readers, &key, &p, BPF_ANY);
}
