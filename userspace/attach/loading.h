/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loads the programs of an object at the same time, on all CPUs. libbpf loads one after another,
 * and most of our start is the kernel's verifier.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach/hooks.h"

/* One program. */
struct nt_load {
	struct bpf_program *prog;
	enum bpf_prog_type type;
	enum bpf_attach_type attach;
	__u32 btf_id;   /* what it attaches to; 0: libbpf says what */
	bool under_way; /* in the thread */
	pthread_t thread;
	struct bpf_insn *insns; /* as libbpf has relocated them */
	size_t n_insns;
	void *func_info, *line_info;
	struct bpf_prog_load_opts opts;
	int fd; /* of the loaded program; or -errno */
};

struct nt_loading {
	const struct btf *kernel;
	int verbose;
	struct nt_load loads[NT_MAX_HOOKS];
	size_t n;
	int types; /* a file of the kernel's types that the object names; -1: none */
	/* what bpf_object_open_opts has as btf_custom_path: that file, or what the user gave */
	const char *btf;
	char path[32];
};

/*
 * Takes the loading of the object that is opened next from libbpf. kernel: the kernel's BTF, or
 * NULL; given: a file with it that the user gave, or NULL. verbose > 0 prints what the verifier
 * says on programs that it refuses, > 1 what each costs it. End with nt_loading_end().
 */
void nt_loading_begin(struct nt_loading *loading, const struct btf *kernel, const char *given,
		      int verbose);

/*
 * Loads the program as one of BPF_PROG_TYPE_TRACING that attaches to a type of the kernel's BTF.
 * Returns 0 or -errno. Call it before the object is loaded.
 */
int nt_loading_trace(struct nt_loading *loading, struct bpf_program *prog,
		     enum bpf_attach_type attach, int btf_id);

/* Gives libbpf the types that the object names. Call it once the object is open. */
int nt_loading_types(struct nt_loading *loading, const struct bpf_object *object);

/*
 * Waits until the threads are done. Then the object's programs are theirs. Returns -errno of the
 * first program that the kernel refused. Call this after the load of the object, even if that
 * failed, and before the object is destroyed.
 */
int nt_loading_end(struct nt_loading *loading);
