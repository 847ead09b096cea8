// SPDX-License-Identifier: GPL-2.0
#include "terms/words.h"

#include <stddef.h>

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

/* Defines nt_<name>_word(). */
#define WORD(name, table)                                                                  \
	const char *nt_##name##_word(unsigned int value)                                   \
	{                                                                                  \
		return value < sizeof(table) / sizeof((table)[0]) ? (table)[value] : NULL; \
	}

WORD(hold_reason, hold_reasons)
WORD(release, releases)
WORD(ack_release, ack_releases)
WORD(ack_reason, ack_reasons)
WORD(cause, causes)
WORD(evidence, evidences)
WORD(pattern, patterns)
WORD(dropped, dropped_ways)
WORD(untraced, untraced_kinds)
WORD(unnamed, unnamed)
