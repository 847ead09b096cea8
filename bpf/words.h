/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The words that documents and records use for the enums of nagletrace.h. Who includes this says
 * what an nt_word is: user space points to the text, and a gadget's event holds it.
 */
#pragma once

static const nt_word hold_reasons[NT_HOLD_REASONS] = {
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

static const nt_word releases[NT_RELEASES] = {
	[NT_RELEASE_ACK] = "ack",         [NT_RELEASE_FULL_SEGMENT] = "full_segment",
	[NT_RELEASE_NODELAY] = "nodelay", [NT_RELEASE_UNCORK] = "uncork",
	[NT_RELEASE_TIMER] = "timer",     [NT_RELEASE_LOSS_PROBE] = "loss_probe",
	[NT_RELEASE_PUSH] = "push",       [NT_RELEASE_CLOSE] = "close",
	[NT_RELEASE_RESET] = "reset",     [NT_RELEASE_DEVICE] = "device",
};

static const nt_word ack_releases[NT_ACK_RELEASES] = {
	[NT_ACK_TIMER] = "timer",
	[NT_ACK_PIGGYBACK] = "piggyback",
	[NT_ACK_READ] = "read",
	[NT_ACK_SEGMENT] = "segment",
};

static const nt_word ack_reasons[NT_ACK_REASONS] = {
	[NT_ACK_REASON_PINGPONG] = "pingpong",
	[NT_ACK_REASON_QUICK_EXHAUSTED] = "quick_exhausted",
	[NT_ACK_REASON_LEFT_UNREAD] = "left_unread",
	[NT_ACK_REASON_QUICKACK_OFF] = "quickack_off",
	[NT_ACK_REASON_DELACK_MAX] = "delack_max",
};

static const nt_word causes[NT_CAUSES] = {
	[NT_CAUSE_NAGLE_DELAYED_ACK] = "nagle_delayed_ack",
	[NT_CAUSE_DELAYED_ACK] = "delayed_ack",
	[NT_CAUSE_CORK_CEILING] = "cork_ceiling",
};

static const nt_word evidences[NT_EVIDENCES] = {
	[NT_EVIDENCE_SEEN] = "seen",
	[NT_EVIDENCE_INFERRED] = "inferred",
};

static const nt_word patterns[NT_PATTERNS] = {
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
