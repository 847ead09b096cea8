/* SPDX-License-Identifier: GPL-2.0 */
/* Finds out what the running kernel offers and permits, by trying. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/utsname.h>
#include "attach/hooks.h"
#include "base/error.h"

struct btf;

/* An errno of our own: perf_event_paranoid leaves kprobes to CAP_SYS_ADMIN. */
#define NT_E_PARANOID 600
/* It attaches function hooks only once, and they are wanted again. */
#define NT_E_ONCE 601
/* Under lockdown `confidentiality` no BPF program may read the kernel's memory. */
#define NT_E_LOCKDOWN 602

/* BTF IDs: of bpf_rdonly_cast(), which came with 6.2, and of what we cast to; 0: there is none. */
struct nt_cast {
	int function, tcp_sock;
};

struct nt_kernel {
	struct utsname uname;
	struct btf *btf; /* the kernel's own; NULL if it has none that we can read */
	struct nt_cast cast;
	int traced[NT_MAX_HOOKS]; /* by place in nt_hooks: a tracepoint's BTF ID; 0: none */
	bool again;               /* hooks are attached again after they were detached: --standby */
	struct {
		bool known;
		int err; /* 0, or -errno with which a hook of that kind was refused */
	} fentry, kprobe;
	struct {
		bool known;
		int err;
		int btf_id; /* of what a program attaches to; 0: a kprobe, or a kernel without BTF
			     */
		const char *target; /* the hook's own, or its alternative */
	} hooks[NT_MAX_HOOKS];      /* the results of nt_kernel_hook(), by place in nt_hooks */
	char lockdown[32];          /* "none", "integrity", "confidentiality"; "" where not known */
};

/* Reads the kernel's properties. Release with nt_kernel_free(). */
void nt_kernel_probe(struct nt_kernel *k);
void nt_kernel_free(struct nt_kernel *k);

/* Can this hook be placed? Returns 0 or -errno. */
int nt_kernel_hook(struct nt_kernel *k, const struct nt_hook *hook);

/* Returns 0, or -errno with which the kernel would refuse every hook of that family. */
int nt_kernel_family(struct nt_kernel *k, enum nt_hooks family);

/*
 * Returns how many more instructions than untraced an operation takes that is nearly all traced,
 * and on which kernel that was measured (make bench-instructions; docs/performance.md): the newest
 * that is no newer than this one, or else the oldest.
 */
const char *nt_kernel_cost(enum nt_hooks family);

/*
 * Returns the family that --hooks auto takes: the cheapest that is whole on this kernel, or else
 * the first that suffices; NT_HOOKS_AUTO if none does.
 */
enum nt_hooks nt_kernel_choose(struct nt_kernel *k);

/* May this process load the programs, and make their maps? */
bool nt_permission_check(struct nt_error *error);

/* Explains what -errno from the kernel means here: a missing capability, lockdown, and so on. */
void nt_kernel_explain(const struct nt_kernel *k, int err, char *text, size_t size);

/*
 * Does the kernel derive the longest delay of an ACK from the smallest retransmission timeout?
 * Commit bbf80d713fe7 made it so. We go by the version, since nothing else shows it: the function
 * is inlined.
 */
bool nt_kernel_delack_by_rto_min(void);

/* Is the kernel of this version or a later one? */
bool nt_kernel_since(unsigned int major, unsigned int minor, unsigned int patch);

/* Returns one jiffy in ns: the resolution of the coarse clock is one tick. */
unsigned long long nt_kernel_tick_ns(void);
