/* SPDX-License-Identifier: GPL-2.0 */
/* Says where records come from, and gives their ACKs names that other hosts give them too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "terms/settings.h"
#include "base/siphash.h"
#include "bpf/nagletrace.h"

struct nt_origin {
	char host[NT_HOST_MAX + 1];
	char boot_id[37]; /* "": the kernel does not show it */
	uint8_t key[NT_SIPHASH_KEY_LEN], next_key[NT_SIPHASH_KEY_LEN];
	int64_t next_key_ns; /* from when on (since 1970) the next key is used; 0: there is none */
	bool filtered;       /* the options choose processes or connections */
	bool all_late_acks;  /* no filter but --netns leaves out late ACKs, nor does a missing hook
			      */
	bool all_holds;      /* nor holds, and they are reported */
};

/*
 * Takes the host's name, of uname(2) where the settings have none, and the boot's number, and takes
 * the key: that of the fleet, else one that only this run knows, so that nothing can be joined
 * across hosts. Returns 0 or -errno.
 */
int nt_origin_read(struct nt_origin *origin, const struct nt_settings *settings);

/* Returns the ID of an ACK that went out or came at mono_ns (CLOCK_MONOTONIC): whoever has not the
 * key learns nothing of its numbers. */
uint64_t nt_origin_ack_id(const struct nt_origin *origin, const struct nt_ack_numbers *numbers,
			  uint64_t mono_ns);

/* Returns the ID of the key of now: two recordings can be joined if theirs are the same. */
uint64_t nt_origin_key_id(const struct nt_origin *origin);

/* Did the next key come into use in the last span_ns? Then an ACK of that time may have another ID
 * on another host, whose clock differs a little. */
bool nt_origin_key_changed(const struct nt_origin *origin, uint64_t span_ns);
