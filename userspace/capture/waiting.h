/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that wait for a look at all descriptors (owners.h), in the order in which they came, in
 * bounded memory. We take them out of the ring buffer, to make room there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "bpf/nagletrace.h"
#include "base/shares.h"

/* The ring buffer holds as many if nobody shares it; they take 1.2 MB while there are any. */
#define NT_MOST_WAITING 4096

struct nt_waiting {
	struct nt_record *records; /* NULL: no record waits */
	size_t first, count;
	struct nt_shares shares;
};

/* Adds a copy. False: there is no room for one more record of its share, or no memory. */
bool nt_waiting_add(struct nt_waiting *waiting, const struct nt_record *record);

/* The first returns the record that waits longest, NULL: none; the second removes it. */
const struct nt_record *nt_waiting_first(const struct nt_waiting *waiting);
void nt_waiting_drop(struct nt_waiting *waiting);

void nt_waiting_clear(struct nt_waiting *waiting);
