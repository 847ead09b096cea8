/* SPDX-License-Identifier: GPL-2.0 */
/* Looks at the sockets of this host by a BPF iterator, which needs Linux 5.9 and privileges. */
#pragma once

#include "terms/settings.h"
#include "attach/iterator.h"
#include "capture/owner_list.h"
#include "sample/diag_message.h"
#include "sample/places.h"

struct sample_bpf;

struct nt_by_iterator {
	struct sample_bpf *skel;
	struct bpf_link *sockets, *descriptors;
	struct nt_iterator reader;
	struct nt_owner_list owners;
	struct nt_places places;
	uint64_t netns;      /* only this one; 0: all */
	uint64_t scanned_ns; /* when the namespaces were listed */
	size_t refused;      /* namespaces that we may not enter, at the last look */
};

/* Returns 0 or -errno. */
int nt_by_iterator_open(struct nt_by_iterator *by, const struct nt_settings *settings);
void nt_by_iterator_close(struct nt_by_iterator *by);

/* Calls take for each socket that holds bytes back. Returns 0 or -errno. */
int nt_by_iterator_look(struct nt_by_iterator *by, nt_sampled_take *take, void *context);

/* Looks at all descriptors for the owners of sockets, which .owners has then. Returns 0 or
 * -errno. */
int nt_by_iterator_scan(struct nt_by_iterator *by, nt_owner_wanted *wanted, void *context);
