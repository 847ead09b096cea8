/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loads the programs of hooks at the same time, on all CPUs. libbpf loads one after another, and
 * most of our start is the kernel's verifier.
 */
#ifndef NT_LOADING_H
#define NT_LOADING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach/hooks.h"

/* What a thread loads. */
struct nt_load {
	pthread_t thread;
	struct bpf_program *prog;
	struct bpf_insn *insns; /* as libbpf has relocated them */
	size_t n_insns;
	void *func_info;
	struct bpf_prog_load_opts opts;
	int fd; /* of the loaded program; or -errno */
};

struct nt_loading {
	struct nt_load loads[NT_MAX_HOOKS];
	size_t n;
};

/* Makes libbpf hand programs to threads. Call this before the object is opened. typed: the kernel
 * has BTF, for good. */
void nt_loading_begin(struct nt_loading *loading, bool typed);

/*
 * Waits until the threads are done. Then the object's programs are theirs. Returns -errno of the
 * first program that the kernel refused. Call this after the load of the object, even if that
 * failed, and before the object is destroyed.
 */
int nt_loading_end(struct nt_loading *loading);

#endif /* NT_LOADING_H */
