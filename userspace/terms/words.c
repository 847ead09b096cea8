// SPDX-License-Identifier: GPL-2.0
#include "terms/words.h"

#include <stddef.h>

#define WORD_OF(table, value) ((value) < sizeof(table) / sizeof((table)[0]) ? (table)[value] : NULL)

typedef const char *nt_word;

#include "bpf/words.h"

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
