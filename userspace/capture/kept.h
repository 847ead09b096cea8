/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the remedies that `nagletrace fix --keep` and `--pin` keep on this host (bpf/keep.bpf.c).
 */
#pragma once

#include <stdint.h>

struct bpf_link;
struct nt_tracer;

enum nt_kept_remedy {
	NT_KEPT_NODELAY,
	NT_KEPT_DELACK,
	NT_KEPT_REMEDIES,
};

/* The option as setsockopt(2) names it. */
const char *nt_kept_option(enum nt_kept_remedy remedy);

/* The remedy whose program the kernel knows by that name; NT_KEPT_REMEDIES: it is none of ours. */
enum nt_kept_remedy nt_kept_remedy_of(const char *program);

/* Returns what lists them, or NULL where this kernel or these settings do not. */
struct bpf_link *nt_kept_open(const struct nt_tracer *tracer);

/* Returns 0 with how many there are of each, or -errno. */
int nt_kept_count(const struct bpf_link *list, uint64_t counts[NT_KEPT_REMEDIES]);
