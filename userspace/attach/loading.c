// SPDX-License-Identifier: GPL-2.0
#include "attach/loading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/btf.h>
#include "attach/types.h"
#include "base/log.h"

#define ITERATOR  "iter/"
#define LOG_COSTS 4 /* BPF_LOG_STATS, include/linux/bpf_verifier.h */

/* nt_loading_begin() began it, and nt_loading_end() has not ended it. */
static struct nt_loading *under_way;

static void *load(void *context)
{
	struct nt_load *l = context;

	l->fd = bpf_prog_load(l->type, bpf_program__name(l->prog), "GPL", l->insns, l->n_insns,
			      &l->opts);
	if (l->fd >= 0 || !l->opts.log_level)
		return NULL;
	/* with 0 it asks for the reason if the kernel refuses */
	l->opts.log_level = 0;
	return load(l);
}

/* The kernel runs an iterator where it would call a function of that name. */
static int iterator_id(const struct btf *kernel, const char *section)
{
	char name[64];

	snprintf(name, sizeof(name), "bpf_iter_%s", section + strlen(ITERATOR));
	return btf__find_by_name_kind(kernel, name, BTF_KIND_FUNC);
}

/* Returns the program's place, or a new one if it has none; NULL: there is no room. */
static struct nt_load *place_of(struct nt_loading *loading, struct bpf_program *prog)
{
	struct nt_load *l;

	for (size_t i = 0; i < loading->n; i++)
		if (loading->loads[i].prog == prog)
			return &loading->loads[i];
	if (loading->n == NT_MAX_HOOKS)
		return NULL;
	l = &loading->loads[loading->n++];
	*l = (struct nt_load){.prog = prog, .type = bpf_program__type(prog), .fd = -ECANCELED};
	return l;
}

static void *copy(const void *from, size_t size)
{
	void *to = malloc(size + 1);

	return to && size ? memcpy(to, from, size) : to;
}

/*
 * Takes copies of what libbpf is about to load: it frees that as soon as another program cannot be
 * loaded. Line numbers are for the verifier's words.
 */
static bool fill(struct nt_load *l, const struct nt_loading *loading,
		 const struct bpf_prog_load_opts *opts)
{
	__u32 lines = loading->verbose ? opts->line_info_cnt : 0;

	l->n_insns = bpf_program__insn_cnt(l->prog);
	l->insns = copy(bpf_program__insns(l->prog), l->n_insns * sizeof(*l->insns));
	l->func_info = copy(opts->func_info, opts->func_info_cnt * opts->func_info_rec_size);
	l->line_info = copy(opts->line_info, lines * opts->line_info_rec_size);
	l->opts = *opts;
	l->opts.sz = sizeof(l->opts); /* a later libbpf's may be larger */
	l->opts.func_info = l->func_info;
	l->opts.line_info = l->line_info;
	l->opts.line_info_cnt = lines;
	if (l->btf_id) {
		l->opts.attach_btf_id = l->btf_id;
		l->opts.expected_attach_type = l->attach;
	}
	if (loading->verbose)
		l->opts.log_buf = calloc(1, BPF_LOG_BUF_SIZE);
	l->opts.log_size = l->opts.log_buf ? BPF_LOG_BUF_SIZE : 0;
	l->opts.log_level = l->opts.log_buf && loading->verbose > 1 ? LOG_COSTS : 0;
	return l->insns && l->func_info && l->line_info;
}

/*
 * Is called by libbpf before it loads a program: libbpf_prog_prepare_load_fn_t. A thread loads it,
 * and libbpf an empty one, whose descriptor becomes that of the thread's in the end.
 */
static int hand_over(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long cookie)
{
	static struct bpf_insn empty[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	const char *section = bpf_program__section_name(prog);
	struct nt_load *l;
	int err = 0;

	if (!under_way)
		return 0;
	if (!strncmp(section, ITERATOR, strlen(ITERATOR)))
		err = nt_loading_trace(under_way, prog, BPF_TRACE_ITER,
				       iterator_id(under_way->kernel, section));
	if (err)
		return err;
	l = place_of(under_way, prog);
	if (!l || !fill(l, under_way, opts))
		return -ENOMEM;
	l->under_way = !pthread_create(&l->thread, NULL, load, l);
	if (!l->under_way)
		load(l);
	opts->func_info_cnt = opts->line_info_cnt = 0;
	opts->expected_attach_type = 0;
	return bpf_program__set_insns(prog, empty, sizeof(empty) / sizeof(empty[0]));
}

/*
 * For good: before 1.3, libbpf_unregister_prog_handler() leaves a dangling pointer behind. libbpf
 * takes all of them for types that need nothing of the kernel's BTF.
 */
static void register_handlers(void)
{
	static const struct {
		const char *section;
		enum bpf_prog_type type;
	} kinds[] = {
		{"raw_tp/", BPF_PROG_TYPE_RAW_TRACEPOINT},
		{"fentry/", BPF_PROG_TYPE_RAW_TRACEPOINT},
		{"fexit/", BPF_PROG_TYPE_RAW_TRACEPOINT},
		{ITERATOR, BPF_PROG_TYPE_RAW_TRACEPOINT},
		{"kprobe/", BPF_PROG_TYPE_KPROBE},
		{"kretprobe/", BPF_PROG_TYPE_KPROBE},
	};
	static bool registered;
	LIBBPF_OPTS(libbpf_prog_handler_opts, opts, .prog_prepare_load_fn = hand_over);

	for (size_t i = 0; !registered && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		libbpf_register_prog_handler(kinds[i].section, kinds[i].type, 0, &opts);
	registered = true;
}

void nt_loading_begin(struct nt_loading *loading, const struct btf *kernel, const char *given,
		      int verbose)
{
	register_handlers();
	loading->kernel = kernel;
	loading->verbose = verbose;
	loading->n = 0;
	loading->btf = given;
	loading->types = given || !kernel ? -1 : memfd_create("types", MFD_CLOEXEC);
	snprintf(loading->path, sizeof(loading->path), "/proc/self/fd/%d", loading->types);
	if (loading->types >= 0 && !access(loading->path, R_OK)) /* no /proc: libbpf reads all */
		loading->btf = loading->path;
	under_way = loading;
}

int nt_loading_types(struct nt_loading *loading, const struct bpf_object *object)
{
	if (loading->types < 0)
		return 0;
	return nt_types_write(loading->types, loading->kernel, bpf_object__btf(object));
}

int nt_loading_trace(struct nt_loading *loading, struct bpf_program *prog,
		     enum bpf_attach_type attach, int btf_id)
{
	struct nt_load *l = place_of(loading, prog);

	if (!l || btf_id <= 0)
		return l ? -ENOENT : -ENOMEM;
	l->type = BPF_PROG_TYPE_TRACING;
	l->attach = attach;
	l->btf_id = btf_id;
	return bpf_program__set_expected_attach_type(prog, attach);
}

/* Returns 0 if the program is libbpf's now, or else -errno. */
static int take_back(struct nt_load *l)
{
	int err;

	if (l->under_way)
		pthread_join(l->thread, NULL);
	if (l->opts.log_buf && l->opts.log_buf[0])
		nt_log("the verifier on %s:\n%s", bpf_program__name(l->prog), l->opts.log_buf);
	free(l->insns);
	free(l->func_info);
	free(l->line_info);
	free(l->opts.log_buf);
	if (l->fd < 0)
		return l->fd;
	err = dup3(l->fd, bpf_program__fd(l->prog), O_CLOEXEC) < 0 ? -errno : 0;
	close(l->fd);
	return err;
}

int nt_loading_end(struct nt_loading *loading)
{
	int err = 0;

	under_way = NULL;
	for (size_t i = 0; i < loading->n; i++) {
		int failed = take_back(&loading->loads[i]);

		err = err ? err : failed;
	}
	if (loading->types >= 0)
		close(loading->types);
	return err;
}
