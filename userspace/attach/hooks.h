/* SPDX-License-Identifier: GPL-2.0 */
/* The hooks: where each program attaches in which family, and what is lost without it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "terms/settings.h"

enum nt_attach {
	NT_ATTACH_RAW_TP, /* BTF-typed where the kernel has BTF */
	NT_ATTACH_FENTRY,
	NT_ATTACH_FEXIT,
	NT_ATTACH_KPROBE,
	NT_ATTACH_KRETPROBE,
};

/* Bits of enum nt_hooks, the families in which a hook takes part. */
#define NT_FAMILY(f)         (1U << (f))
#define NT_FAMILY_FUNCTION   NT_FAMILY(NT_HOOKS_FUNCTION)
#define NT_FAMILY_KPROBE     NT_FAMILY(NT_HOOKS_KPROBE)
#define NT_FAMILY_TRACEPOINT NT_FAMILY(NT_HOOKS_TRACEPOINT)
#define NT_FAMILY_ALL        (NT_FAMILY_FUNCTION | NT_FAMILY_KPROBE | NT_FAMILY_TRACEPOINT)

/* The traces that need a hook. */
enum nt_hook_need {
	NT_ALWAYS,
	NT_FOR_PIDS, /* those with -p */
	NT_FOR_TIMELINE,
	NT_FOR_LATE_ACKS, /* --late-acks, --timeline; the daemon's while late ACKs are wanted */
};

struct nt_hook {
	const char *program;
	const char *target;      /* the kernel's name of the function or tracepoint */
	const char *alternative; /* used where target is missing, or NULL */
	enum nt_attach how;
	unsigned int families;
	bool required; /* without it the family shows nothing true */
	enum nt_hook_need need;
	const char *part; /* what is lost without it */
	/*
	 * --max-overhead: the step that detaches it, from 1 on; 0: it stays until all are detached
	 * at once
	 */
	unsigned int detach_step;
};

#define NT_DETACH_STEPS 1
#define NT_MAX_HOOKS    32
extern const struct nt_hook nt_hooks[];
extern const size_t nt_n_hooks;

/* The hooks of a trace, each by its place in nt_hooks. */
struct nt_hook_set {
	enum nt_hooks family;
	char why[160];               /* why we chose this family; "": the user did */
	bool missing[NT_MAX_HOOKS];  /* hooks of the family that this kernel lacks */
	bool detached[NT_MAX_HOOKS]; /* other hooks of the family that are detached */
};

/* Returns "fentry", "kprobe", "tracepoint", … */
const char *nt_attach_name(enum nt_attach how);

/* Returns "function", "kprobe", "tracepoint" or "none". */
const char *nt_family_name(enum nt_hooks family);
