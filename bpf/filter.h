/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Filters: which sockets and processes the user asked for. The kernel side leaves out sockets by
 * namespace, family and port of either end. By process it only marks them, since the other end of a
 * stall may belong to another process: user space decides.
 */
#pragma once

#include "scratch.h"
#include "socket.h"

/* The ports that -P, -L and -D name. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u16);
	__type(value, u8);
} ports SEC(".maps");

/* The processes that -p names, and the children that they have had since the start. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u8);
} pids SEC(".maps");

/* Marks which numbers may be in that map, so that the others cost no look into it. */
__u8 pid_marks[NT_PID_MARKS];

/* The cgroup that -c names. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} cgroups SEC(".maps");

/*
 * Sockets that a process asked for has open or wrote to: from the socket's address to the process.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u32);
} owned SEC(".maps");

/* Marks which sockets may be in that map, so that the others cost no look into it. Nobody clears a
 * mark. */
__u8 owned_marks[NT_OWNED_MARKS];

/* The running thread. It uses a socket only while it is inside a system call on that socket. */
struct writer {
	u64 cgroup_id;
	u32 tgid;
	u32 tid;
	char comm[NT_COMM_LEN];
	bool target;
};

static __always_inline bool family_wanted(struct sock *sk, const bool trusted)
{
	u16 family = READ(trusted, sk, __sk_common.skc_family);
	struct in6_addr addr;

	if (family == AF_INET6) {
		BPF_CORE_READ_INTO(&addr, sk, __sk_common.skc_v6_daddr);
		if (v4_mapped(&addr))
			family = AF_INET;
	}
	return family == nt_config.family;
}

static __always_inline bool netns_wanted(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == nt_config.netns;
}

static __always_inline bool socket_wanted(struct sock *sk, const bool trusted)
{
	u16 port;

	if (!nt_config.filter)
		return true;
	if (nt_config.netns && !netns_wanted(sk))
		return false;
	if (nt_config.family && !family_wanted(sk, trusted))
		return false;
	if (!nt_config.ports)
		return true;
	port = READ(trusted, sk, __sk_common.skc_num);
	if (bpf_map_lookup_elem(&ports, &port))
		return true;
	port = bpf_ntohs(READ(trusted, sk, __sk_common.skc_dport));
	return bpf_map_lookup_elem(&ports, &port);
}

/* Asks the same by addresses, which stay when the socket has given its port back. */
static __always_inline bool tuple_wanted(const struct nt_tuple *tuple)
{
	if (nt_config.netns && tuple->netns != nt_config.netns)
		return false;
	if (nt_config.family && tuple->family != nt_config.family)
		return false;
	return !nt_config.ports || bpf_map_lookup_elem(&ports, &tuple->local_port) ||
	       bpf_map_lookup_elem(&ports, &tuple->remote_port);
}

/* Is it in a traced namespace, so that the audit counts its timers, and left out all the same? */
static __always_inline bool socket_only_audited(struct sock *sk, const bool trusted)
{
	return (!nt_config.netns || netns_wanted(sk)) && !socket_wanted(sk, trusted);
}

static __always_inline void read_leader_comm(char comm[NT_COMM_LEN])
{
	struct task_struct *task = (void *)bpf_get_current_task();

	__builtin_memset(comm, 0, NT_COMM_LEN);
	BPF_CORE_READ_STR_INTO((char(*)[NT_COMM_LEN])comm, task, group_leader, comm);
}

static __always_inline bool name_matches(const char comm[NT_COMM_LEN])
{
	for (int i = 0; i < NT_COMM_LEN; i++) {
		if (comm[i] != nt_config.name[i])
			return false;
		if (!comm[i])
			break;
	}
	return true;
}

/*
 * Is the running process surely not asked for? The whole host's write_only_counts() costs as much.
 */
static __always_inline bool runs_another(const bool trusted)
{
	const struct task_struct *task;
	u32 tgid;

	if (nt_config.target != NT_TARGET_PIDS)
		return false;
	if (trusted && NT_DIRECT &&
	    bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		task = bpf_get_current_task_btf();
		tgid = task->tgid;
	} else {
		tgid = bpf_get_current_pid_tgid() >> 32;
	}
	return !pid_marks[tgid % NT_PID_MARKS];
}

static __always_inline bool is_target_pid(const u32 *tgid)
{
	return pid_marks[*tgid % NT_PID_MARKS] && bpf_map_lookup_elem(&pids, tgid);
}

/* Is the running process, of this number and name, among those asked for? */
static __always_inline bool is_target(const u32 *tgid, const char comm[NT_COMM_LEN])
{
	switch (nt_config.target) {
	case NT_TARGET_PIDS:
		return is_target_pid(tgid);
	case NT_TARGET_NAME:
		return name_matches(comm);
	case NT_TARGET_CGROUP:
		return bpf_current_task_under_cgroup(&cgroups, 0) == 1;
	default:
		return true;
	}
}

static __always_inline bool current_is_target(void)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	char comm[NT_COMM_LEN] = {};

	if (nt_config.target == NT_TARGET_NAME)
		read_leader_comm(comm);
	return is_target(&tgid, comm);
}

static __always_inline void read_writer(struct writer *w)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();

	w->tgid = pid_tgid >> 32;
	w->tid = (u32)pid_tgid;
	w->cgroup_id = bpf_get_current_cgroup_id();
	read_leader_comm(w->comm);
}

/* Returns the process asked for that uses this socket; NULL: none. tcp_disconnect() takes the
 * remote port away. */
static __always_inline u32 *owner_of(struct sock *sk, const bool trusted)
{
	u16 port = READ(trusted, sk, __sk_common.skc_dport);
	u64 key = (u64)sk;

	if (port && !owned_marks[port % NT_OWNED_MARKS])
		return NULL;
	return bpf_map_lookup_elem(&owned, &key);
}

/*
 * Remembers that a process asked for uses this socket: for the totals, and for an owner that soon
 * exits.
 */
static __always_inline void mark_owned(struct sock *sk, const bool trusted)
{
	u16 port = READ(trusted, sk, __sk_common.skc_dport);
	u64 key = (u64)sk;
	u32 tgid;

	port %= NT_OWNED_MARKS;
	if (!owned_marks[port]) /* other CPUs read that line of the cache */
		owned_marks[port] = true;
	if (bpf_map_lookup_elem(&owned, &key))
		return;
	tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_map_update_elem(&owned, &key, &tgid, BPF_ANY);
}

/* Names the process asked for that uses the socket of this end, if there is one. */
static __always_inline void end_take_owner(struct nt_end *end, struct sock *sk)
{
	u32 *tgid = owner_of(sk, false);

	if (!tgid)
		return;
	if (!end->tgid)
		end->tgid = *tgid;
	end->target = true;
}

/* Takes the process of what may be a thread; false: it is something else. */
static __always_inline bool take_thread(struct writer *w, const struct task_struct *thread)
{
	const struct task_struct *leader = BPF_CORE_READ(thread, group_leader);
	u32 tgid = BPF_CORE_READ(leader, tgid);

	/* a process's first thread leads it, and leads itself */
	if (!tgid || BPF_CORE_READ(leader, pid) != tgid || BPF_CORE_READ(thread, tgid) != tgid ||
	    BPF_CORE_READ(leader, group_leader) != leader)
		return false;
	w->tgid = tgid;
	w->tid = BPF_CORE_READ(thread, pid);
	BPF_CORE_READ_STR_INTO(&w->comm, thread, group_leader, comm);
	return true;
}

/* Returns who waits first in a queue; NULL: nobody. */
static __always_inline const struct wait_queue_entry *
first_waiter(const struct wait_queue_head *queue)
{
	const void *first = BPF_CORE_READ(queue, head.next);

	if (!first || first == &queue->head)
		return NULL;
	return first - bpf_core_field_offset(struct wait_queue_entry, entry);
}

/*
 * Names the process that waits for this socket: it may be gone when user space looks for it. The
 * entry's private is the thread in a read (woken_wake_function()), what poll() keeps (pollwake()),
 * or NULL for epoll, which has a queue of its own (ep_poll_callback()). Returns what it polls for;
 * 0: it does not poll, or nobody waits.
 */
static __always_inline u32 read_waiter(struct writer *w, const struct sock *sk)
{
	const struct socket_wq *queue = BPF_CORE_READ(sk, sk_wq);
	const struct wait_queue_entry *entry = queue ? first_waiter(&queue->wait) : NULL;
	const void *private = BPF_CORE_READ(entry, private);
	const struct eppoll_entry *watch;
	const struct poll_table_entry *polls;
	const struct eventpoll *epoll;
	u32 events = 0;

	if (!entry)
		return 0;
	if (!private && bpf_core_field_exists(((struct eppoll_entry *)0)->base)) {
		watch = (void *)entry - bpf_core_field_offset(struct eppoll_entry, wait);
		events = BPF_CORE_READ(watch, base, event.events);
		epoll = BPF_CORE_READ(watch, base, ep);
		entry = epoll ? first_waiter(&epoll->wq) : NULL;
		private = BPF_CORE_READ(entry, private);
	}
	if (!private || take_thread(w, private))
		return events;
	polls = (void *)entry - bpf_core_field_offset(struct poll_table_entry, wait);
	take_thread(w, BPF_CORE_READ((const struct poll_wqueues *)private, polling_task));
	return events ?: BPF_CORE_READ(polls, key);
}

/* Does the name begin with these n bytes, eight at most? */
static __always_inline bool begins(const char name[NT_COMM_LEN], const char *with, const u32 n)
{
	u64 is = 0, wanted = 0;

	__builtin_memcpy(&is, name, n);
	__builtin_memcpy(&wanted, with, n);
	return is == wanted;
}

struct symbol {
	union {
		char text[64];
		u64 words[8];
	};
	u32 module;   /* where its module begins in the text; 0: it is of no module */
	u64 callback; /* here, since the stack has no room */
};

/*
 * Finds what follows the first '[' of the text. It searches from the end, since stale bytes follow
 * the text.
 */
static __always_inline void find_module(struct symbol *symbol)
{
	for (u32 i = sizeof(symbol->words) / sizeof(symbol->words[0]); i--;) {
		u32 place = first_zero(symbol->words[i] ^ '[' * EACH_BYTE);

		if (place < 8)
			symbol->module = i * 8 + place + 1;
	}
}

/*
 * Finds the module whose function TCP calls when data comes, as in "xs_data_ready [sunrpc]". False:
 * there is none, or no program can ask for a function's name, as before 5.13, or the two are longer
 * than 63 bytes. A process uses the socket of SMC.
 */
static __always_inline bool take_module(char comm[NT_COMM_LEN], const struct sock *sk)
{
	static const char format[] = "%ps";
	struct symbol *symbol;
	bool found = false;
	u32 level;
	u64 last;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_snprintf))
		return false;
	symbol = scratch_take(&level);
	if (!symbol)
		return false;
	symbol->module = 0;
	symbol->callback = (u64)BPF_CORE_READ(sk, sk_data_ready);
	last = bpf_snprintf(symbol->text, sizeof(symbol->text), format, &symbol->callback,
			    sizeof(symbol->callback)) -
	       sizeof("]");
	barrier_var(last);
	if (last < sizeof(symbol->text) && symbol->text[last] == ']') {
		symbol->text[last] = '\0';
		find_module(symbol);
	}
	if (symbol->module) {
		__builtin_memset(comm, 0, NT_COMM_LEN);
		bpf_probe_read_kernel_str(comm, NT_COMM_LEN, symbol->text + symbol->module);
		found = !begins(comm, "smc", sizeof("smc"));
	}
	scratch_give(level);
	return found;
}

/*
 * Does the kernel itself use the socket? Then w becomes its module, or the kernel's thread that
 * waits for the socket. A storage client may take over a socket that a process opened:
 * sk_set_memalloc(). A server in the kernel has sockets without a file. NFS gives its sockets one,
 * as if a process had opened them. Parts of MPTCP's and SMC's sockets are kernel's sockets too, by
 * sk_kern_sock, and so is what such a listener has not accepted yet, which has no struct socket.
 */
static __always_inline bool kernel_uses(struct writer *w, const struct sock *sk)
{
	const u64 memalloc = 1 << 14; /* SOCK_MEMALLOC, enum sock_flags, include/net/sock.h */
	const struct tcp_sock *tp = (void *)sk;
	bool taken = PROBED(sk, __sk_common.skc_flags) & memalloc;
	bool opened = PROBED(sk, sk_socket, file);
	char comm[NT_COMM_LEN];
	bool module;

	if (!taken && (!PROBED(sk, sk_socket) || (opened && !PROBED_BITS(sk, sk_kern_sock)) ||
		       (bpf_core_field_exists(tp->is_mptcp) && PROBED(tp, is_mptcp))))
		return false;
	module = take_module(comm, sk);
	if (!taken && !module && opened)
		return false;
	w->cgroup_id = 0;
	__builtin_memset(w->comm, 0, NT_COMM_LEN);
	if (module)
		__builtin_memcpy(w->comm, comm, NT_COMM_LEN);
	else
		read_waiter(w, sk);
	if (begins(w->comm, "kworker/", 8)) /* which of them it is says nothing */
		__builtin_memset(w->comm, 0, NT_COMM_LEN);
	w->tgid = w->tid = 0;
	return true;
}

static __always_inline void end_take_waiter(struct nt_end *end, const struct sock *sk)
{
	struct writer waiter = {};

	if (kernel_uses(&waiter, sk))
		end->user = NT_USER_KERNEL;
	else
		read_waiter(&waiter, sk);
	end->tgid = waiter.tgid;
	end->tid = waiter.tid;
	__builtin_memcpy(end->comm, waiter.comm, NT_COMM_LEN);
}

/* Does the socket count in the totals? */
static __always_inline bool socket_counts(struct sock *sk, const bool trusted)
{
	return nt_config.target == NT_TARGET_ALL || owner_of(sk, trusted);
}
