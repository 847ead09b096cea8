/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel side and user space share these words (enums), records and totals. Enum values are
 * part of the record format: new values are appended, none is reused, and 0 is never valid. */
#pragma once

#include <linux/types.h>

#define NT_COMM_LEN 16 /* TASK_COMM_LEN */
/* stands for bpf_rdonly_cast() in a call; no helper has that number */
#define NT_CALL_RDONLY_CAST 0x7fff0001
/* stands for the kernel's BTF ID of struct tcp_sock, which that call takes */
#define NT_TYPE_TCP_SOCK 0x7fff0002
#define NT_STACK_DEPTH   64
#define NT_NO_STACK      (-1)
#define NT_REGS_BYTES    272
#define NT_STACK_BYTES   4096
#define NT_STACK_CHUNK   512 /* of one read: the stack may end before NT_STACK_BYTES */

/* The unsent tail is not on the wire for one of these reasons, in the order in which tcp_write_xmit
 * tests them; or, from SNDBUF on, something else waits for an ACK. */
enum nt_hold_reason {
	NT_HOLD_INVALID = 0,
	NT_HOLD_NAGLE = 1,
	NT_HOLD_CORK = 2,
	NT_HOLD_MSG_MORE = 3,
	NT_HOLD_AUTOCORK = 4,
	NT_HOLD_TSO_DEFER = 5,
	NT_HOLD_CWND = 6,
	NT_HOLD_RWND = 7,
	NT_HOLD_PACING = 8,
	NT_HOLD_TSQ = 9, /* the queue below TCP takes no more */
	NT_HOLD_UNKNOWN = 10,
	NT_HOLD_SNDBUF = 11,    /* a writer, for room in the send buffer */
	NT_HOLD_HANDSHAKE = 12, /* the peer's accept(), for the last ACK of the handshake */
	NT_HOLD_LINGER = 13,    /* close(), for the ACK of the FIN */
	NT_HOLD_REASONS = 14,
};

/* One of these released the held bytes. */
enum nt_release {
	NT_RELEASE_INVALID = 0,
	NT_RELEASE_ACK = 1,
	NT_RELEASE_FULL_SEGMENT = 2,
	NT_RELEASE_NODELAY = 3,
	NT_RELEASE_UNCORK = 4, /* TCP_CORK cleared, or the part without MSG_MORE written */
	NT_RELEASE_TIMER = 5,  /* the probe timer: the ceiling of cork and MSG_MORE */
	NT_RELEASE_LOSS_PROBE = 6,
	NT_RELEASE_PUSH = 7,
	NT_RELEASE_CLOSE = 8,
	NT_RELEASE_RESET = 9,
	NT_RELEASE_DEVICE = 10, /* room below TCP released a pacing, TSQ or autocork hold */
	NT_RELEASES = 11,
};

/* One of these released a pending ACK. */
enum nt_ack_release {
	NT_ACK_INVALID = 0,
	NT_ACK_TIMER = 1,
	NT_ACK_PIGGYBACK = 2,
	NT_ACK_READ = 3,
	NT_ACK_SEGMENT = 4,
	NT_ACK_RELEASES = 5,
};

/* The kernel delayed an ACK for one of these reasons. */
enum nt_ack_reason {
	NT_ACK_REASON_INVALID = 0,
	NT_ACK_REASON_PINGPONG = 1,
	NT_ACK_REASON_QUICK_EXHAUSTED = 2,
	NT_ACK_REASON_QUICKACK_OFF = 3,
	NT_ACK_REASON_DELACK_MAX = 4,
	NT_ACK_REASON_LEFT_UNREAD = 5,
	NT_ACK_REASONS = 6,
};

enum nt_cause {
	NT_CAUSE_INVALID = 0, /* the hold is no stall */
	NT_CAUSE_NAGLE_DELAYED_ACK = 1,
	NT_CAUSE_CORK_CEILING = 2,
	NT_CAUSE_DELAYED_ACK = 3, /* somebody else waited, as hold.reason says */
	NT_CAUSES = 4,
};

enum nt_evidence {
	NT_EVIDENCE_INVALID = 0,
	NT_EVIDENCE_SEEN = 1,
	NT_EVIDENCE_INFERRED = 2,
	NT_EVIDENCES = 3,
};

enum nt_pattern {
	NT_PATTERN_INVALID = 0,
	NT_PATTERN_WRITE_WRITE_READ = 1,
	NT_PATTERN_REPLY_TAIL = 2,
	NT_PATTERN_HANDSHAKE_FLIGHT = 3,
	NT_PATTERN_ACK_CLOCKED = 4,
	NT_PATTERN_CORK_CEILING = 5,
	NT_PATTERN_AUTOCORK = 6,
	NT_PATTERN_PEER_HOLDS = 7,
	NT_PATTERN_LOCKED_SOCKET = 8,
	NT_PATTERN_FULL_BUFFER = 9,
	NT_PATTERN_SMALL_CWND = 10,
	NT_PATTERN_SERVER_FIRST = 11,
	NT_PATTERN_LINGERING_CLOSE = 12,
	NT_PATTERN_PIGGYBACKED_ACK = 13,
	NT_PATTERN_SEVERAL_WRITES = 14,
	NT_PATTERN_ONE_WAY = 15,
	NT_PATTERNS = 16,
};

enum nt_record_kind {
	NT_RECORD_INVALID = 0,
	NT_RECORD_STALL = 1,
	NT_RECORD_HOLD = 2,
	NT_RECORD_LATE_ACK = 3, /* a receiver's, for a sender on another host */
};

/* --timeline reports these events of a connection. */
enum nt_event_kind {
	NT_EVENT_INVALID = 0,
	NT_EVENT_WRITE = 1,
	NT_EVENT_READ = 2,
	NT_EVENT_SENT = 3,
	NT_EVENT_RECEIVED = 4,
	NT_EVENT_HOLD_BEGIN = 5,
	NT_EVENT_HOLD_END = 6,
	NT_EVENT_ACK_DELAYED = 7,
	NT_EVENT_ACK_TIMER = 8,
	NT_EVENT_STATE = 9,
	NT_EVENT_KINDS = 10,
};

/* Selects the processes whose sockets are reported; the kernel side narrows, user space decides. */
enum nt_target {
	NT_TARGET_ALL = 0,
	NT_TARGET_PIDS = 1,
	NT_TARGET_NAME = 2,
	NT_TARGET_CGROUP = 3,
};

/* A record, or a part of one, is dropped in one of these ways; the kernel side counts each. */
enum nt_dropped {
	NT_DROPPED_RING_FULL = 0, /* a record found no room in the ring buffer */
	NT_DROPPED_HOLD_MAP = 1,  /* a hold found no room in its map */
	NT_DROPPED_ACK_MAP = 2,   /* a late ACK found no room in its map */
	NT_DROPPED_STACK = 3,     /* a call stack could not be taken */
	NT_DROPPED_RETURN = 4,    /* a function's return came without its entry (kprobe) */
	NT_DROPPED_SHARE = 5, /* a record beyond its user's share of a ring buffer that fills up */
	NT_DROPPED_LATE_ACK = 6, /* a late ACK, or a hold for its sake, beyond late_ack_ns */
	NT_DROPPED_WAYS = 7,
};

/* Holds addresses as the kernel has them (an IPv4-mapped IPv6 address has family AF_INET), and
 * ports in host order. */
struct nt_tuple {
	__u8 local_addr[16];
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 reserved;
	__u32 netns; /* inode number of the network namespace */
};

enum nt_socket_user {
	NT_USER_PROCESS,
	NT_USER_NOBODY, /* no process has it open: an orphan, or a part of another socket */
	NT_USER_KERNEL, /* comm is the name of its module or thread, or "" */
};

/* The delayed-ACK timer fired while the application held the socket, so that the ACK waited. */
enum nt_lock {
	NT_LOCK_NONE = 0,
	NT_LOCK_SEEN = 1,   /* until it left, which a hook saw */
	NT_LOCK_UNSEEN = 2, /* for longer than the record says, which tracepoints do not see */
};

/* Describes an end of a connection that is on this host. */
struct nt_end {
	__u64 sk; /* the socket's address: a key, valid while the socket lives */
	struct nt_tuple tuple;
	__u32 tgid; /* the writer's; where no write was seen, that of a process asked for, or of
		     * one that waits for data; or 0 */
	__u32 tid;
	__u32 min_rtt_us; /* 0: unknown */
	__u64 cgroup_id;
	__u64 share; /* the share of the ring buffer that this end uses; see bpf/share.h */
	char comm[NT_COMM_LEN];
	__u8 present;
	__u8 target; /* the writer is among the processes asked for */
	__u8 nodelay;
	__u8 cork;
	__u8 pingpong; /* interactive mode */
	__u8 quick;    /* quick-ACK credit left */
	__u8 locked;   /* enum nt_lock */
	__u8 user;     /* enum nt_socket_user */
};

struct nt_hold_part {
	__u64 begin_ns; /* CLOCK_MONOTONIC, like all times */
	__u64 end_ns;
	__u32 bytes;
	__u32 in_flight_bytes;
	__u32 writes;      /* that wrote the held bytes; 0: not known */
	__u32 write_bytes; /* of each of them; 0: not known, or not alike */
	__u32 mss;
	__s32 stack_id; /* the held write's call stack, with stack_word; or NT_NO_STACK */
	__u8 reason;    /* enum nt_hold_reason */
	__u8 release;   /* enum nt_release */
	__u8 sent_one;  /* what was in flight was one write, and the held bytes are others */
	__u8 reserved;
	__u32 way_us; /* nt_way_us(), of a hold that an ACK ended; 0: not known */
	__u64 stack_word;
};

/* A stack's id is its place in the map of stacks, and above that the generation of the map: user
 * space empties it now and then, and then the places have other stacks. */
#define NT_STACK_PLACES     4096
#define NT_STACK_GENERATION 0x7ffff /* the mask of its bits */

/* Identifies a call site of a held write by its frame-pointer chain and the word on top of the user
 * stack, which is the return address where code without frame pointers made the system call. */
struct nt_stack_key {
	__s32 id;
	__u32 tgid;
	__u64 word;
};

/* DWARF unwinding needs the registers at the system call, and the top of the user stack. */
struct nt_stack_dump {
	__u8 regs[NT_REGS_BYTES]; /* struct pt_regs (x86), struct user_pt_regs (arm64) */
	__u64 sp;                 /* 0: this kernel does not show the registers */
	__u32 size;               /* of .bytes that are valid */
	__u32 reserved;
	__u8 bytes[NT_STACK_BYTES];
};

struct nt_ack_part {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 bytes;
	__u32 limit_us;     /* the longest delay of an ACK of this socket */
	__u8 release;       /* enum nt_ack_release */
	__u8 reason;        /* enum nt_ack_reason */
	__u8 freed_nothing; /* it came to its sender on this host, where nothing waited */
	__u8 reserved[5];
};

/*
 * The two numbers by which both hosts know the ACK that released a hold: what it acknowledges, and
 * its own sequence number. Both are 0 where that ACK is not known.
 */
struct nt_ack_numbers {
	__u32 ack;
	__u32 seq;
};

struct nt_record {
	__u32 size;             /* of this record, first in every version */
	__u8 kind;              /* enum nt_record_kind */
	__u8 cause;             /* enum nt_cause */
	__u8 evidence;          /* enum nt_evidence */
	__u8 pattern;           /* enum nt_pattern */
	__u64 time_ns;          /* the end of the stall or hold, CLOCK_MONOTONIC */
	struct nt_end sender;   /* if present, hold is valid */
	struct nt_end receiver; /* if present, ack is valid */
	struct nt_hold_part hold;
	struct nt_ack_part ack;
	struct nt_ack_numbers numbers; /* user space hashes them, and shows them nowhere */
};

/* Events report these states of the kernel's sockets; include/net/tcp_states.h. */
#define NT_TCP_ESTABLISHED 1
#define NT_TCP_CLOSE       7

/* An event of --timeline. Sequence numbers are as on the wire. */
struct nt_event {
	__u32 size; /* of this event, first in every version */
	__u8 kind;  /* enum nt_event_kind */
	__u8 reason;
	__u8 release;
	__u8 flags; /* SENT, RECEIVED: of the TCP header; STATE: the new one */
	__u64 time_ns;
	__u64 sk;
	struct nt_tuple tuple;
	__u32 tgid; /* the process that uses the socket now, with tid, comm; 0: none */
	__u32 tid;
	__u32 seq; /* first byte; READ: after the last taken; STATE: next to send */
	char comm[NT_COMM_LEN];
	__u32 bytes;
	__u32 ack; /* SENT, RECEIVED; STATE: the next byte to come */
	__u32 in_flight_bytes;
	__u8 nodelay; /* the socket's current state, up to .drained */
	__u8 cork;
	__u8 pingpong;
	__u8 quick;
	__u64 duration_ns;
	__u64 dropped; /* events that found no room so far */
	__u8 drained;  /* the application has taken all that came */
	__u8 reserved[7];
};

/* Computes a number that is the same for both ends of a connection, in whatever namespaces. Another
 * connection hardly ever has the same. */
static inline __u64 nt_connection_key(const struct nt_tuple *tuple)
{
	const __u32 *local = (const void *)tuple->local_addr;
	const __u32 *remote = (const void *)tuple->remote_addr;
	__u32 a = tuple->local_port * 0x9e3779b1U, b = tuple->remote_port * 0x9e3779b1U;

	for (int i = 0; i < 4; i++) {
		a = (a ^ local[i]) * 0x85ebca6bU;
		b = (b ^ remote[i]) * 0x85ebca6bU;
	}
	return (__u64)(a ^ b) << 32 | (__u32)(a + b);
}

/* Computes the share of a record that has both ends; another pair hardly ever has the same. */
static inline __u64 nt_share_of_both(__u64 self, __u64 peer)
{
	return self ^ (peer * 0x9e3779b97f4a7c15ULL);
}

/*
 * The kernel side counts these for each CPU: they are right even when the ring buffer overflowed.
 */
struct nt_totals {
	__u64 writes; /* user space adds them up from struct nt_often */
	__u64 holds[NT_HOLD_REASONS];
	__u64 hold_ns[NT_HOLD_REASONS];
	__u64 releases[NT_RELEASES];
	__u64 delayed_acks; /* that their timer sent: TcpExtDelayedACKs */
	__u64 stalls[NT_CAUSES];
	__u64 dropped[NT_DROPPED_WAYS];
};

/* With more CPUs than these, two count in one place, and may overwrite each other's count. */
#ifndef NT_CPUS
#define NT_CPUS 1024
#endif

/* What it touches most often on a CPU: a line of the cache. */
struct nt_often {
	__u64 writes;
	__u64 sends_ack;  /* the socket whose timer is about to send an ACK; bpf/pending_ack.h */
	__u64 expired_ns; /* when that timer was seen to expire */
	__u64 reserved[5];
};

/*
 * Holds that cost time and were no stall are counted by user, process name and reason; bpf/slow.h.
 * A row of each reason without a name counts those of user 0 without one, and those that find no
 * room.
 */
#define NT_SLOW_ROWS  256
#define NT_KERNEL_UID 0xffffffffU

struct nt_slow_key {
	char comm[NT_COMM_LEN]; /* the writer's; padded with NUL; "" if no write was seen, or no
				   room is left */
	__u32 reason;           /* enum nt_hold_reason */
	__u32 uid; /* of the socket; or that of the kernel's sockets, which no user has */
};

struct nt_slow {
	__u64 holds;
	__u64 duration_ns;       /* of all these holds */
	__u64 since_ns, last_ns; /* when the first and the last of them ended (CLOCK_MONOTONIC) */
	/* of the last one: the connection as the sender sees it, its segment size, and the window
	 * (bytes) that the peer had open when the hold ended: at its start it may be closed */
	struct nt_tuple tuple;
	__u32 mss;
	__u32 window;
	__u32 tgid; /* the writer; 0: not seen, or there are several */
};

/* A bucket of sockets, by the hash of their addresses; bpf/bucket.h. */
enum nt_mixed {
	NT_MIXED_SHORT,
	NT_MIXED_LONG,
	NT_MIXED_LONG_BEGUN, /* and more of the same are held on */
};

struct nt_bucket {
	union {
		struct {
			__u32 holds;        /* how many of its sockets have one */
			__u32 answer_until; /* the last jiffy for an answer to a late ACK */
		};
		__u64 holds_or_awaits; /* 0: no socket has a hold, and no ACK was late */
	};
	__u32 large_hash;    /* of the socket whose large tail a program looked at last; 0: none */
	__u16 large_jiffies; /* when that was: the lower half */
	__u16 mixed_long;    /* enum nt_mixed: were the bytes below the end of longer ones? */
	__u32 mixed_hash; /* of the socket that last sent what was held and is no write by itself */
	__u32 mixed_seq;  /* the end of that */
	__u32 stalled_hash;    /* of the socket that stalled last */
	__u32 stalled_rcv_nxt; /* what it awaited then from its peer */
};

/* The processes that -p names are marked by their numbers modulo this. */
#define NT_PID_MARKS 1024

/* The sockets that processes asked for have open are marked by the remote port, in network order,
 * modulo this. */
#define NT_OWNED_MARKS 4096

/* User space sets these between open and load; flags are 0 or 1. */
struct nt_config {
	__u64 min_ns;      /* holds and stalls shorter than this are not reported */
	__u64 tick_ns;     /* one jiffy */
	__u64 late_ack_ns; /* one record of a late ACK in this time; 0: of each */
	union {
		struct {
			__u32 netns; /* only sockets of this network namespace; 0: of all */
			__u8 target; /* enum nt_target */
			__u8 family; /* AF_INET, AF_INET6, or 0 for both */
			__u16 ports; /* only sockets with a port in the map `ports` */
		};
		__u64 filter; /* 0: each socket is wanted, and counts */
	};
	char name[NT_COMM_LEN]; /* NT_TARGET_NAME */
	__u8 all_holds;         /* report holds that are no stall too */
	__u8 stacks;            /* take the call stack of the held write */
	__u8 functions;         /* send attempts are hooked, and not inferred from socket state */
	__u8 timeline;          /* report every event */
	__u8 delack_by_rto_min; /* tcp_delack_max() derives it from the route's and the socket's */
	__u8 casts;             /* the kernel has bpf_rdonly_cast() */
	__u8 reserved[2];
};

/* A process has sockets that no hook follows all the way. */
enum nt_untraced {
	NT_TRACED = 0,
	NT_UNTRACED_KTLS = 1,    /* keeps a record open above TCP, as MSG_MORE asks it to */
	NT_UNTRACED_PACKETS = 2, /* takes a device's packets: for a TCP of its own, or to look */
	NT_UNTRACED_KINDS = 3,
};

/* An owner of a socket, from the task_file iterator: one for each process with a descriptor
 * of it. */
struct nt_owner {
	__u64 sk;    /* 0: no TCP socket, or a sign of life; see NT_PIECE */
	__u64 share; /* as in struct nt_end */
	struct nt_tuple tuple;
	__u32 tgid;
	__u32 fd : 29;      /* the smallest, of several */
	__u32 untraced : 2; /* enum nt_untraced, of processes that somebody asked for */
	__u32 passing : 1;  /* a child on its way to an exec, which closes this descriptor */
	__u32 tid;          /* a thread that has it; the first may lack it, or have ended */
};

/* Kubelet's containers lie four levels deep, eight where it is in one itself. NAME_MAX is 255. */
#define NT_CGROUP_LEVELS 8
#define NT_CGROUP_NAME   256

/* Where the reader's cgroup namespace begins: /proc shows it no name above. */
struct nt_cgroup_root {
	__u32 known;  /* 0: not looked at so far, or it lies deeper */
	__u32 levels; /* 0: it is the host's root */
	char names[NT_CGROUP_LEVELS][NT_CGROUP_NAME]; /* from the innermost out */
};

/* The bytes of a piece in which user space reads an iterator, a whole number of entries. A program
 * that writes a piece makes the read return. */
#define NT_PIECE(entry) (4096 / (entry) * (entry))

/* A look with no hook attached found this socket holding bytes back: bpf/sample.bpf.c lists all of
 * it, sock_diag leaves at 0 what it does not know. */
struct nt_sampled {
	struct nt_end end;
	__u64 time_ns;      /* when it was looked at; CLOCK_MONOTONIC */
	__u64 silent_ns;    /* since it last sent data or an ACK came */
	__u64 untouched_ns; /* since TCP last tried to send; 0: not known */
	__u64 inode;        /* as /proc/PID/fd shows the socket */
	__u32 bytes;
	__u32 in_flight_bytes;
	__u32 mss;
	__u32 data_came; /* segments with data that the socket has received, modulo 2^32 */
	__u32 acks_came; /* and pure ACKs */
	__u8 reason;     /* enum nt_hold_reason; UNKNOWN of sock_diag: a cork or MSG_MORE */
	__u8 recovering; /* from loss */
	__u8 reserved[2];
};

/* The task iterator gives each network namespace, with a thread that lives in it. */
struct nt_netns {
	__u64 id; /* it does not change while the system is up */
	__u32 inum;
	__u32 tid; /* 0: it came from the kernel's list, whoever lives in it */
};

_Static_assert(sizeof(struct nt_tuple) == 44, "nt_tuple has no padding");
_Static_assert(sizeof(struct nt_end) == 104, "nt_end has no padding");
_Static_assert(sizeof(struct nt_hold_part) == 56, "nt_hold_part has no padding");
_Static_assert(sizeof(struct nt_ack_part) == 32, "nt_ack_part has no padding");
_Static_assert(sizeof(struct nt_record) == 16 + 2 * 104 + 56 + 32 + 8, "nt_record has no padding");
_Static_assert(sizeof(struct nt_event) == 136, "nt_event has no padding");
_Static_assert(sizeof(struct nt_config) == 56, "nt_config has no padding");
_Static_assert(sizeof(struct nt_often) == 64, "CPUs share no line of the cache");
_Static_assert(sizeof(struct nt_slow_key) == 24, "nt_slow_key has no padding");
_Static_assert(sizeof(struct nt_slow) == 88, "nt_slow has no padding");
_Static_assert(sizeof(struct nt_owner) == 72, "nt_owner has no padding");
_Static_assert(sizeof(struct nt_sampled) == 160, "nt_sampled has no padding");
_Static_assert(sizeof(struct nt_netns) == 16, "nt_netns has no padding");
