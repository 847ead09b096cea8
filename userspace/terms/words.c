// SPDX-License-Identifier: GPL-2.0
#include "terms/words.h"

#include <stddef.h>

#define WORD_OF(table, value) ((value) < sizeof(table) / sizeof((table)[0]) ? (table)[value] : NULL)

static const char *const hold_reasons[NT_HOLD_REASONS] = {
	[NT_HOLD_NAGLE] = "nagle",
	[NT_HOLD_CORK] = "cork",
	[NT_HOLD_MSG_MORE] = "msg_more",
	[NT_HOLD_AUTOCORK] = "autocork",
	[NT_HOLD_TSO_DEFER] = "tso_defer",
	[NT_HOLD_CWND] = "cwnd",
	[NT_HOLD_RWND] = "rwnd",
	[NT_HOLD_PACING] = "pacing",
	[NT_HOLD_TSQ] = "tsq",
	[NT_HOLD_UNKNOWN] = "unknown",
	[NT_HOLD_SNDBUF] = "sndbuf",
	[NT_HOLD_HANDSHAKE] = "handshake",
	[NT_HOLD_LINGER] = "linger",
};

static const char *const releases[NT_RELEASES] = {
	[NT_RELEASE_ACK] = "ack",         [NT_RELEASE_FULL_SEGMENT] = "full_segment",
	[NT_RELEASE_NODELAY] = "nodelay", [NT_RELEASE_UNCORK] = "uncork",
	[NT_RELEASE_TIMER] = "timer",     [NT_RELEASE_LOSS_PROBE] = "loss_probe",
	[NT_RELEASE_PUSH] = "push",       [NT_RELEASE_CLOSE] = "close",
	[NT_RELEASE_RESET] = "reset",     [NT_RELEASE_DEVICE] = "device",
};

static const char *const ack_releases[NT_ACK_RELEASES] = {
	[NT_ACK_TIMER] = "timer",     [NT_ACK_PIGGYBACK] = "piggyback", [NT_ACK_READ] = "read",
	[NT_ACK_SEGMENT] = "segment", [NT_ACK_RESET] = "reset",
};

static const char *const ack_reasons[NT_ACK_REASONS] = {
	[NT_ACK_REASON_PINGPONG] = "pingpong",
	[NT_ACK_REASON_QUICK_EXHAUSTED] = "quick_exhausted",
	[NT_ACK_REASON_LEFT_UNREAD] = "left_unread",
	[NT_ACK_REASON_QUICKACK_OFF] = "quickack_off",
	[NT_ACK_REASON_DELACK_MAX] = "delack_max",
};

static const char *const causes[NT_CAUSES] = {
	[NT_CAUSE_NAGLE_DELAYED_ACK] = "nagle_delayed_ack",
	[NT_CAUSE_DELAYED_ACK] = "delayed_ack",
	[NT_CAUSE_CORK_CEILING] = "cork_ceiling",
};

static const char *const evidences[NT_EVIDENCES] = {
	[NT_EVIDENCE_SEEN] = "seen",
	[NT_EVIDENCE_INFERRED] = "inferred",
};

static const char *const patterns[NT_PATTERNS] = {
	[NT_PATTERN_WRITE_WRITE_READ] = "write_write_read",
	[NT_PATTERN_REPLY_TAIL] = "reply_tail",
	[NT_PATTERN_HANDSHAKE_FLIGHT] = "handshake_flight",
	[NT_PATTERN_ACK_CLOCKED] = "ack_clocked",
	[NT_PATTERN_CORK_CEILING] = "cork_ceiling",
	[NT_PATTERN_AUTOCORK] = "autocork",
	[NT_PATTERN_PEER_HOLDS] = "peer_holds",
	[NT_PATTERN_LOCKED_SOCKET] = "locked_socket",
	[NT_PATTERN_FULL_BUFFER] = "full_buffer",
	[NT_PATTERN_SMALL_CWND] = "small_cwnd",
	[NT_PATTERN_SERVER_FIRST] = "server_first",
	[NT_PATTERN_LINGERING_CLOSE] = "lingering_close",
	[NT_PATTERN_PIGGYBACKED_ACK] = "piggybacked_ack",
	[NT_PATTERN_SEVERAL_WRITES] = "several_writes",
	[NT_PATTERN_ONE_WAY] = "one_way",
};

static const char *const dropped_ways[NT_DROPPED_WAYS] = {
	[NT_DROPPED_RING_FULL] = "ring_full",     [NT_DROPPED_HOLD_MAP] = "hold_map_full",
	[NT_DROPPED_ACK_MAP] = "ack_map_full",    [NT_DROPPED_STACK] = "stack",
	[NT_DROPPED_RETURN] = "function_return",  [NT_DROPPED_SHARE] = "ring_share",
	[NT_DROPPED_LATE_ACK] = "late_ack_limit",
};

static const char *const untraced_kinds[NT_UNTRACED_KINDS] = {
	[NT_UNTRACED_KTLS] = "ktls",
	[NT_UNTRACED_PACKETS] = "packets",
};

static const char *const unnamed[] = {
	[NT_UNNAMED_DIED] = "worker_died", [NT_UNNAMED_DEADLINE] = "deadline",
	[NT_UNNAMED_LIMIT] = "limit",      [NT_UNNAMED_BUSY] = "busy",
	[NT_UNNAMED_GONE] = "gone",
};

const char *nt_hold_reason_word(unsigned int reason)
{
	return WORD_OF(hold_reasons, reason);
}

const char *nt_release_word(unsigned int release)
{
	return WORD_OF(releases, release);
}

const char *nt_ack_release_word(unsigned int release)
{
	return WORD_OF(ack_releases, release);
}

const char *nt_ack_reason_word(unsigned int reason)
{
	return WORD_OF(ack_reasons, reason);
}

const char *nt_cause_word(unsigned int cause)
{
	return WORD_OF(causes, cause);
}

const char *nt_evidence_word(unsigned int evidence)
{
	return WORD_OF(evidences, evidence);
}

const char *nt_pattern_word(unsigned int pattern)
{
	return WORD_OF(patterns, pattern);
}

const char *nt_dropped_word(unsigned int where)
{
	return WORD_OF(dropped_ways, where);
}

const char *nt_untraced_word(unsigned int kind)
{
	return WORD_OF(untraced_kinds, kind);
}

const char *nt_unnamed_word(unsigned int why)
{
	return WORD_OF(unnamed, why);
}
