/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel side and user space share: the words (enums), the records and the totals.
 * Enum values are part of the record format: new ones are appended, none is reused, 0 is never
 * valid.
 */
#ifndef NAGLETRACE_H
#define NAGLETRACE_H

#include <linux/types.h>

#define NT_COMM_LEN    16 /* TASK_COMM_LEN */
#define NT_STACK_DEPTH 64
#define NT_NO_STACK    (-1)
#define NT_REGS_BYTES  272
#define NT_STACK_BYTES 4096
#define NT_STACK_CHUNK 512 /* a stack may end before its bytes do */

/* Why the unsent tail is not on the wire, in the order in which tcp_write_xmit asks. */
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
	NT_HOLD_REASONS = 11,
};

/* What let the held bytes go. */
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
	NT_RELEASE_DEVICE = 10, /* pacing, TSQ or autocorking let go: room below TCP */
	NT_RELEASES = 11,
};

/* How an ACK that was put off went out at last. */
enum nt_ack_end {
	NT_ACK_INVALID = 0,
	NT_ACK_TIMER = 1,
	NT_ACK_PIGGYBACK = 2,
	NT_ACK_READ = 3,
	NT_ACK_SEGMENT = 4,
	NT_ACK_RESET = 5,
	NT_ACK_ENDS = 6,
};

/* Why the ACK was put off. */
enum nt_ack_why {
	NT_WHY_INVALID = 0,
	NT_WHY_PINGPONG = 1,
	NT_WHY_QUICK_EXHAUSTED = 2,
	NT_WHY_QUICKACK_OFF = 3,
	NT_WHY_DELACK_MAX = 4,
	NT_WHYS = 5,
};

enum nt_cause {
	NT_CAUSE_INVALID = 0, /* of a hold that is no stall */
	NT_CAUSE_NAGLE_DELAYED_ACK = 1,
	NT_CAUSE_CORK_CEILING = 2,
	NT_CAUSES = 3,
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
	NT_PATTERNS = 9,
};

enum nt_record_kind {
	NT_RECORD_INVALID = 0,
	NT_RECORD_STALL = 1,
	NT_RECORD_HOLD = 2,
};

/* What happens on a connection, for --timeline. */
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

/* Which process's sockets are asked for; the kernel narrows, user space decides. */
enum nt_target {
	NT_TARGET_ALL = 0,
	NT_TARGET_PIDS = 1,
	NT_TARGET_NAME = 2,
	NT_TARGET_CGROUP = 3,
};

/* Ways to lose something, each counted. */
enum nt_lost {
	NT_LOST_RING_FULL = 0, /* a record found no room in the ring buffer */
	NT_LOST_HOLD_MAP = 1,  /* a hold found no room in its map */
	NT_LOST_ACK_MAP = 2,   /* a pending ACK found no room in its map */
	NT_LOST_STACK = 3,     /* a call stack could not be taken */
	NT_LOST_RETURN = 4,    /* a function's return came without its entry (kprobe) */
	NT_LOST_WAYS = 5,
};

/* Addresses as the kernel holds them (an IPv4-mapped IPv6 address is family AF_INET), ports in host
 * order. */
struct nt_tuple {
	__u8 local_addr[16];
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 reserved;
	__u32 netns; /* inode number of the network namespace */
};

/* One end of a connection that is on this host. */
struct nt_end {
	__u64 sk; /* the socket's address: a key, valid while the socket lives */
	struct nt_tuple tuple;
	__u32 tgid; /* who wrote; 0 where nobody was seen writing */
	__u32 tid;
	__u32 min_rtt_us; /* 0: not known */
	__u64 cgroup_id;
	char comm[NT_COMM_LEN];
	__u8 present;
	__u8 target; /* the writer is among the processes asked for */
	__u8 nodelay;
	__u8 cork;
	__u8 pingpong; /* interactive mode */
	__u8 quick;    /* quick-ACK credit left */
	__u8 locked;   /* the delayed-ACK timer fired while the application held the socket */
	__u8 reserved;
};

struct nt_hold_part {
	__u64 begin_ns; /* CLOCK_MONOTONIC, as all times */
	__u64 end_ns;
	__u32 bytes;
	__u32 in_flight_bytes;
	__u32 writes;
	__u32 mss;
	__s32 stack_id; /* of the call stack that made the held write, as the next; NT_NO_STACK:
			   none */
	__u8 reason;    /* enum nt_hold_reason */
	__u8 release;   /* enum nt_release */
	__u8 reserved[2];
	__u64 stack_word;
};

/*
 * One call site of a held write: the frame pointers' chain and the word on top of the user stack,
 * which is the return address where code without frame pointers made the system call.
 */
struct nt_stack_key {
	__s32 id;
	__u32 tgid;
	__u64 word;
};

/* What unwinding by DWARF needs: the registers at the system call, and the top of the user stack.
 */
struct nt_stack_dump {
	__u8 regs[NT_REGS_BYTES]; /* struct pt_regs (x86), struct user_pt_regs (arm64) */
	__u64 sp;                 /* 0: this kernel shows no registers */
	__u32 size;               /* of what is valid of bytes */
	__u32 reserved;
	__u8 bytes[NT_STACK_BYTES];
};

struct nt_ack_part {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 bytes;
	__u8 end; /* enum nt_ack_end */
	__u8 why; /* enum nt_ack_why */
	__u8 reserved[2];
};

struct nt_record {
	__u32 size;             /* of this record, first in every version */
	__u8 kind;              /* enum nt_record_kind */
	__u8 cause;             /* enum nt_cause */
	__u8 evidence;          /* enum nt_evidence */
	__u8 pattern;           /* enum nt_pattern */
	__u64 time_ns;          /* when it ended, CLOCK_MONOTONIC */
	struct nt_end sender;   /* present: hold is valid */
	struct nt_end receiver; /* present: ack is valid */
	struct nt_hold_part hold;
	struct nt_ack_part ack;
};

/* States of the kernel's sockets that an event tells of; include/net/tcp_states.h. */
#define NT_TCP_ESTABLISHED 1
#define NT_TCP_CLOSE       7

/* Of --timeline; sequence numbers as they are on the wire. */
struct nt_event {
	__u32 size; /* of this event, first in every version */
	__u8 kind;  /* enum nt_event_kind */
	__u8 reason;
	__u8 release;
	__u8 flags; /* SENT, RECEIVED: of the TCP header; STATE: the new one */
	__u64 time_ns;
	__u64 sk;
	struct nt_tuple tuple;
	__u32 tgid; /* of the process that uses the socket just now, as the next two; 0: none does
		     */
	__u32 tid;
	__u32 seq; /* of the first byte; READ: after the last byte taken; STATE: the first to send
		    */
	char comm[NT_COMM_LEN];
	__u32 bytes;
	__u32 ack; /* SENT, RECEIVED; STATE: the first byte to come */
	__u32 in_flight_bytes;
	__u8 nodelay; /* as the socket is now, to `drained` */
	__u8 cork;
	__u8 pingpong;
	__u8 quick;
	__u64 duration_ns;
	__u64 lost;   /* events that found no room, so far */
	__u8 drained; /* the application has taken all that came */
	__u8 reserved[7];
};

/*
 * The same number for both ends of a connection, in whatever namespaces; other connections hardly
 * ever have it too.
 */
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

/* Kept per CPU by the kernel side: right even when the ring buffer overflowed. */
struct nt_totals {
	__u64 writes;
	__u64 holds[NT_HOLD_REASONS];
	__u64 hold_ns[NT_HOLD_REASONS];
	__u64 releases[NT_RELEASES];
	__u64 ack_ends[NT_ACK_ENDS];
	__u64 stalls[NT_CAUSES];
	__u64 lost[NT_LOST_WAYS];
};

/* What user space sets between open and load; flags are 0 or 1. */
struct nt_config {
	__u64 min_ns;           /* holds and stalls shorter than this are not reported */
	__u64 tick_ns;          /* one jiffy */
	__u32 netns;            /* only sockets of this network namespace; 0: of all */
	char name[NT_COMM_LEN]; /* NT_TARGET_NAME */
	__u8 target;            /* enum nt_target */
	__u8 family;            /* AF_INET, AF_INET6, or 0 for both */
	__u8 ports;             /* only sockets with a port in the map `ports` */
	__u8 all_holds;         /* report holds that are no stall too */
	__u8 stacks;            /* take the call stack of the held write */
	__u8 direct;            /* plain loads from BTF pointers are allowed in these programs */
	__u8 functions; /* attempts to send are hooked; else they are told from the state they leave
			 */
	__u8 sk_storage;        /* state lives in socket storage, not in a hash */
	__u8 timeline;          /* tell of every event */
	__u8 delack_by_rto_min; /* tcp_delack_max() derives it from the route's and the socket's */
	__u8 reserved[2];
};

/* Who owns a socket, from the task_file iterator: one for each process holding a descriptor of it.
 */
struct nt_owner {
	__u64 sk;
	struct nt_tuple tuple;
	__u32 tgid;
	__u32 fd;  /* of several, the smallest */
	__u32 tid; /* a thread that has it: not each has the table of the first, which may have
		      ended */
};

_Static_assert(sizeof(struct nt_tuple) == 44, "nt_tuple has no padding");
_Static_assert(sizeof(struct nt_end) == 96, "nt_end has no padding");
_Static_assert(sizeof(struct nt_hold_part) == 48, "nt_hold_part has no padding");
_Static_assert(sizeof(struct nt_ack_part) == 24, "nt_ack_part has no padding");
_Static_assert(sizeof(struct nt_record) == 16 + 2 * 96 + 48 + 24, "nt_record has no padding");
_Static_assert(sizeof(struct nt_event) == 136, "nt_event has no padding");
_Static_assert(sizeof(struct nt_config) == 48, "nt_config has no padding");
_Static_assert(sizeof(struct nt_owner) == 64, "nt_owner has no padding");

#endif /* NAGLETRACE_H */
