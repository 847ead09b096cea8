/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the remedies that `nagletrace fix --keep` and `--pin` keep on this host (bpf/keep.bpf.c).
 */
#ifndef NT_KEPT_H
#define NT_KEPT_H

#include <stdint.h>

struct bpf_link;
struct nt_tracer;

enum nt_kept_remedy {
	NT_KEPT_NODELAY,
	NT_KEPT_DELACK,
	NT_KEPT_REMEDIES,
};

/* The option as setsockopt(2) names it, and the program as the kernel does. */
const char *nt_kept_option(enum nt_kept_remedy remedy);
const char *nt_kept_program(enum nt_kept_remedy remedy);

/* Returns what lists them, or NULL where this kernel or these settings do not. */
struct bpf_link *nt_kept_open(const struct nt_tracer *tracer);

/* Returns 0 with how many there are of each, or -errno. */
int nt_kept_count(const struct bpf_link *list, uint64_t counts[NT_KEPT_REMEDIES]);

#endif /* NT_KEPT_H */
