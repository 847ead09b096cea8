// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches an empty program to each hook of a family, as nagletrace would to trace the whole host,
 * says "ready", and stays until a signal ends it: empty FAMILY (function, kprobe, tracepoint).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include "bench/empty.skel.h"
#include "attach/hooks.h"
#include "base/error.h"
#include "cmd/options.h"

static const char *const families[] = {
	[NT_HOOKS_FUNCTION] = "function",
	[NT_HOOKS_KPROBE] = "kprobe",
	[NT_HOOKS_TRACEPOINT] = "tracepoint",
};

static const char *const programs[] = {
	[NT_ATTACH_RAW_TP] = "empty_raw_tp",       [NT_ATTACH_FENTRY] = "empty_fentry",
	[NT_ATTACH_FEXIT] = "empty_fexit",         [NT_ATTACH_KPROBE] = "empty_kprobe",
	[NT_ATTACH_KRETPROBE] = "empty_kretprobe",
};

static int attach(const struct nt_hook *hook, const char *target)
{
	struct empty_bpf *skel = empty_bpf__open();
	bool probe = hook->how == NT_ATTACH_KPROBE || hook->how == NT_ATTACH_KRETPROBE;
	struct bpf_program *prog, *ours;
	struct bpf_link *link;
	int err;

	if (!skel)
		return -errno;
	ours = bpf_object__find_program_by_name(skel->obj, programs[hook->how]);
	bpf_object__for_each_program (prog, skel->obj)
		bpf_program__set_autoload(prog, prog == ours);
	err = probe ? 0 : bpf_program__set_attach_target(ours, 0, target);
	if (!err)
		err = empty_bpf__load(skel);
	if (err) {
		empty_bpf__destroy(skel);
		return err;
	}
	link = probe ? bpf_program__attach_kprobe(ours, hook->how == NT_ATTACH_KRETPROBE, target)
		     : bpf_program__attach_trace(ours);
	return link ? 0 : -errno; /* both live until the process ends */
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

int main(int argc, char **argv)
{
	enum nt_hooks family = NT_HOOKS_AUTO;
	sigset_t signals;
	int signal, n = 0;

	for (size_t f = NT_HOOKS_FUNCTION; argc == 2 && f <= NT_HOOKS_TRACEPOINT; f++)
		if (!strcmp(argv[1], families[f]))
			family = f;
	if (!family) {
		fprintf(stderr, "usage: empty function|kprobe|tracepoint\n");
		return NT_EXIT_USAGE;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	libbpf_set_print(quiet);
	for (size_t i = 0; i < nt_n_hooks; i++) {
		const struct nt_hook *hook = &nt_hooks[i];
		int err;

		if (!(hook->families & NT_FAMILY(family)) || hook->need != NT_ALWAYS)
			continue;
		err = attach(hook, hook->target);
		if (err && hook->alternative)
			err = attach(hook, hook->alternative);
		if (err && hook->required) {
			fprintf(stderr, "empty: cannot hook %s: %s\n", hook->target,
				strerror(-err));
			return NT_EXIT_FAILED;
		}
		n += !err;
	}
	fprintf(stderr, "empty: ready, %d programs\n", n);
	sigwait(&signals, &signal);
	return NT_EXIT_OK;
}
