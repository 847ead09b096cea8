/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A process asked for may wait without a stall of its own: it has connected to a relay on this
 * host, and a connection that the relay made stalls.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "capture/owner_list.h"

/* We leave out more relays than these. */
#define NT_MOST_RELAYS 64

/* A process to which one asked for has connected, as a look at the descriptors found it. */
struct nt_relay {
	uint32_t tgid;
	uint64_t seen_ns; /* by the last such look; CLOCK_MONOTONIC, as all times here */
};

/* All zero: nothing is known. */
struct nt_behind {
	uint64_t *ports; /* that somebody listens at, by namespace, in the last look; in order */
	size_t n_ports;
	struct nt_relay relays[NT_MOST_RELAYS];
	size_t n_relays;
};

/*
 * Takes what a whole look found. A relay of an earlier one stays for some seconds, since a client
 * may close its connection after each answer. Without memory nothing is known.
 */
void nt_behind_take(struct nt_behind *behind, const struct nt_owner_list *list,
		    nt_owner_wanted *wanted, void *context, uint64_t now_ns);

/*
 * Is this process such a relay, and has it made that connection? tuple: from its end. now_ns: when
 * the connection stalled.
 */
bool nt_behind_has(const struct nt_behind *behind, uint32_t tgid, const struct nt_tuple *tuple,
		   uint64_t now_ns);

void nt_behind_clear(struct nt_behind *behind);
