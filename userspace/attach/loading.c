// SPDX-License-Identifier: GPL-2.0
#include "attach/loading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *load(void *context)
{
	struct nt_load *l = context;

	l->fd = bpf_prog_load(bpf_program__type(l->prog), bpf_program__name(l->prog), "GPL",
			      l->insns, l->n_insns, &l->opts);
	return NULL;
}

static void *copy(const void *from, size_t size)
{
	void *to = malloc(size);

	return to ? memcpy(to, from, size) : NULL;
}

/*
 * Starts a thread that loads what libbpf is about to load, from copies: libbpf frees what it has
 * as soon as another program cannot be loaded. Line numbers are for the verifier's words, which
 * nobody reads here.
 */
static bool start(struct nt_load *l, struct bpf_program *prog,
		  const struct bpf_prog_load_opts *opts)
{
	l->prog = prog;
	l->n_insns = bpf_program__insn_cnt(prog);
	l->insns = copy(bpf_program__insns(prog), l->n_insns * sizeof(*l->insns));
	l->func_info = copy(opts->func_info, opts->func_info_cnt * opts->func_info_rec_size);
	l->opts = *opts;
	l->opts.sz = sizeof(l->opts); /* a later libbpf's may be larger */
	l->opts.func_info = l->func_info;
	l->opts.line_info_cnt = 0;
	if (l->insns && l->func_info && !pthread_create(&l->thread, NULL, load, l))
		return true;
	free(l->insns);
	free(l->func_info);
	return false;
}

/* nt_loading_begin() began it, and nt_loading_end() has not ended it. */
static struct nt_loading *under_way;

/*
 * Is called by libbpf before it loads a program: libbpf_prog_prepare_load_fn_t. A thread loads it,
 * and libbpf an empty one, whose descriptor becomes that of the thread's in the end. Without a
 * thread, libbpf loads the program itself.
 */
static int hand_over(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long cookie)
{
	static struct bpf_insn empty[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	struct nt_loading *loading = under_way;

	if (!loading || !start(&loading->loads[loading->n], prog, opts))
		return 0;
	loading->n++;
	opts->func_info_cnt = opts->line_info_cnt = 0;
	return bpf_program__set_insns(prog, empty, sizeof(empty) / sizeof(empty[0]));
}

void nt_loading_begin(struct nt_loading *loading, bool typed)
{
	const struct {
		const char *section;
		enum bpf_prog_type type;
		enum bpf_attach_type attach;
	} kinds[] = {
		/* libbpf 1.2 and later forget the handler of a program whose type changes */
		{"raw_tp/", typed ? BPF_PROG_TYPE_TRACING : BPF_PROG_TYPE_RAW_TRACEPOINT,
		 typed ? BPF_TRACE_RAW_TP : 0},
		{"fentry/", BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY},
		{"fexit/", BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT},
		{"kprobe/", BPF_PROG_TYPE_KPROBE, 0},
		{"kretprobe/", BPF_PROG_TYPE_KPROBE, 0},
	};
	static bool registered;
	LIBBPF_OPTS(libbpf_prog_handler_opts, opts, .prog_prepare_load_fn = hand_over);

	loading->n = 0;
	under_way = loading;
	/* for good: before 1.3, libbpf_unregister_prog_handler() leaves a dangling pointer behind
	 */
	for (size_t i = 0; !registered && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		libbpf_register_prog_handler(kinds[i].section, kinds[i].type, kinds[i].attach,
					     &opts);
	registered = true;
}

int nt_loading_end(struct nt_loading *loading)
{
	int err = 0;

	under_way = NULL;
	for (size_t i = 0; i < loading->n; i++) {
		struct nt_load *l = &loading->loads[i];

		pthread_join(l->thread, NULL);
		free(l->insns);
		free(l->func_info);
		if (l->fd < 0) {
			err = err ? err : l->fd;
			continue;
		}
		if (!err && dup3(l->fd, bpf_program__fd(l->prog), O_CLOEXEC) < 0)
			err = -errno;
		close(l->fd);
	}
	return err;
}
