/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looks at the sockets of this host by a BPF iterator, which needs Linux 5.9 and privileges: over
 * the connections of each network namespace; or, for the standby, over the sockets that processes
 * have open, of all namespaces. Once this one is made it needs no more privileges, and it costs
 * less than a walk over the kernel's tables of connections.
 */
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
	struct nt_places places; /* unless open */
	uint64_t netns;          /* only this one; 0: all */
	uint64_t scanned_ns;     /* when the namespaces were listed */
	size_t refused;          /* namespaces that we may not enter, at the last look */
};

/* open: over the sockets that processes have open. Returns 0 or -errno; close it in either case. */
int nt_by_iterator_open(struct nt_by_iterator *by, const struct nt_settings *settings, bool open);
void nt_by_iterator_close(struct nt_by_iterator *by);

/* Calls take for each socket that holds bytes back. Returns 0 or -errno. */
int nt_by_iterator_look(struct nt_by_iterator *by, nt_sampled_take *take, void *context);

/*
 * Goes on with the look at open sockets until until_ns, or a moment longer; begins one if there is
 * none. Calls take for each that holds bytes back, with one of its processes in end.tgid. Returns
 * 1: there is more to do, 0: the look is done, or -errno, with which it ended.
 */
int nt_by_iterator_look_open(struct nt_by_iterator *by, uint64_t until_ns, nt_sampled_take *take,
			     void *context);

/* Looks at all descriptors for the owners of sockets, which .owners has then. Returns 0 or
 * -errno. */
int nt_by_iterator_scan(struct nt_by_iterator *by, nt_owner_wanted *wanted, void *context);
