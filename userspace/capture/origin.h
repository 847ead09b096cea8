/* SPDX-License-Identifier: GPL-2.0 */
/* Says where records come from, and gives their ACKs names that other hosts give them too. */
#ifndef NT_ORIGIN_H
#define NT_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>
#include "terms/settings.h"
#include "base/siphash.h"
#include "bpf/nagletrace.h"

struct nt_origin {
	char host[NT_HOST_MAX + 1];
	char boot_id[37]; /* "": the kernel does not show it */
	uint8_t key[NT_SIPHASH_KEY_LEN];
	bool all_late_acks; /* no filter but --netns leaves out late ACKs, nor does a missing hook
			     */
	bool all_holds;     /* nor holds, and they are reported */
};

/*
 * Takes the host's name, of uname(2) where the settings have none, and the boot's number, and takes
 * the key: that of the fleet, else one that only this run knows, so that nothing can be joined
 * across hosts. Returns 0 or -errno.
 */
int nt_origin_read(struct nt_origin *origin, const struct nt_settings *settings);

/* Returns the ID of an ACK: whoever has not the key learns nothing of its numbers. */
uint64_t nt_origin_ack_id(const struct nt_origin *origin, const struct nt_ack_numbers *numbers);

/* Returns the ID of the key: two recordings can be joined if theirs are the same. */
uint64_t nt_origin_key_id(const struct nt_origin *origin);

#endif /* NT_ORIGIN_H */
