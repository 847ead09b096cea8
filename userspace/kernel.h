/* SPDX-License-Identifier: GPL-2.0 */
/* What the running kernel offers and permits, found out by trying. */
#ifndef NT_KERNEL_OFFER_H
#define NT_KERNEL_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/utsname.h>
#include "hooks.h"
#include "options.h"

struct btf;

/* Among the errnos: perf_event_paranoid leaves kprobes to CAP_SYS_ADMIN. */
#define NT_E_PARANOID 600

struct nt_kernel {
	struct utsname uname;
	struct btf *btf; /* the kernel's own; NULL where it has none that can be read */
	int fentry;      /* 0, or -errno with which a function hook was refused */
	int kprobe;      /* 0, or -errno with which a kprobe was refused */
	struct {
		bool known;
		int err;
		const char *target;
	} hooks[NT_MAX_HOOKS]; /* what nt_kernel_hook() found out, by place in nt_hooks */
	char lockdown[32];     /* "none", "integrity", "confidentiality"; "" where not known */
};

/* Reads what there is and tries one hook of each kind. Release with nt_kernel_free(). */
void nt_kernel_probe(struct nt_kernel *k);
void nt_kernel_free(struct nt_kernel *k);

/*
 * Can this hook be placed? Returns 0 and the name in *target (the hook's own or its alternative),
 * or -errno. NAGLETRACE_WITHOUT_HOOKS=name[,name] makes hooks missing, for tests.
 */
int nt_kernel_hook(struct nt_kernel *k, const struct nt_hook *hook, const char **target);

/* 0, or -errno with which every hook of that family would be refused. */
int nt_kernel_family(struct nt_kernel *k, enum nt_hooks family);

/* The family that --hooks auto takes; NT_HOOKS_AUTO if none can be had. */
enum nt_hooks nt_kernel_choose(struct nt_kernel *k);

/* "function", "kprobe", "tracepoint" */
const char *nt_family_name(enum nt_hooks family);

/*
 * May this process load the programs, and make their maps? 0, or -EPERM with one line in err that
 * names what is missing and the remedy, or -errno.
 */
int nt_permission_check(char *err, size_t size);

/* What -errno from the kernel means here, in words: a missing capability, lockdown, no trampolines.
 */
void nt_kernel_explain(const struct nt_kernel *k, int err, char *text, size_t size);

/*
 * Is the longest time that an ACK is put off derived from the smallest retransmission timeout?
 * bbf80d713fe7, of which nothing else tells: it is in a function that is inlined.
 */
bool nt_kernel_delack_by_rto_min(void);

/* libbpf's words go to stderr with -v; what it warns of is often a fallback of ours. */
void nt_quiet_libbpf(int verbose);

/* One jiffy in ns, from the resolution of the coarse clock, which is one tick. */
unsigned long long nt_kernel_tick_ns(void);

#endif /* NT_KERNEL_OFFER_H */
