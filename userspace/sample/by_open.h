/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looks at the sockets that processes have open, of all network namespaces, by a BPF iterator over
 * descriptors: once it is open it needs no privilege more, and it costs less than a walk over the
 * kernel's tables of connections.
 */
#pragma once

#include "terms/settings.h"
#include "attach/iterator.h"
#include "sample/diag_message.h"

struct sample_bpf;
struct bpf_link;

struct nt_by_open {
	struct sample_bpf *skel;
	struct bpf_link *descriptors;
	struct nt_iterator reader;
};

/* Returns 0 or -errno. Close it in either case. */
int nt_by_open_open(struct nt_by_open *by, const struct nt_settings *settings);
void nt_by_open_close(struct nt_by_open *by);

/*
 * Goes on with the look under way until until_ns, or a moment longer; begins one if there is none.
 * Calls take for each socket that holds bytes back, with one of its processes in end.tgid. Returns
 * 1: there is more to do, 0: the look is done, or -errno, with which it ended.
 */
int nt_by_open_look(struct nt_by_open *by, uint64_t until_ns, nt_sampled_take *take, void *context);
