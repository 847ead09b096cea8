// SPDX-License-Identifier: GPL-2.0
#include "attach/tracer.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/membarrier.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "attach/loading.h"
#include "nagletrace.skel.h"
#include "probed.skel.h"

/* Both objects are of one source, so that the skeleton of one serves the other too. */
#define SAME_PLACE(section, variable)                                            \
	_Static_assert(offsetof(struct nagletrace_bpf__##section, variable) ==   \
			       offsetof(struct probed_bpf__##section, variable), \
		       "a variable has one place in both objects")
SAME_PLACE(rodata, nt_config);
SAME_PLACE(bss, buckets);
SAME_PLACE(bss, delack_timer_function);
SAME_PLACE(bss, late_acks_wanted);
SAME_PLACE(bss, often);
_Static_assert(sizeof(struct nagletrace_bpf__bss) == sizeof(struct probed_bpf__bss),
	       "both objects have the same variables");

static bool hook_in_family(const struct nt_hook *hook, enum nt_hooks family,
			   const struct nt_settings *settings)
{
	if (!(hook->families & NT_FAMILY(family)))
		return false;
	if (hook->need == NT_FOR_PIDS)
		return settings->n_pids;
	if (hook->need == NT_FOR_LATE_ACKS)
		return settings->late_acks || settings->max_late_acks || settings->timeline;
	return hook->need == NT_FOR_TIMELINE ? settings->timeline : true;
}

static enum nt_target target_kind(const struct nt_settings *settings)
{
	if (settings->n_pids)
		return NT_TARGET_PIDS;
	if (settings->name[0])
		return NT_TARGET_NAME;
	return settings->cgroup ? NT_TARGET_CGROUP : NT_TARGET_ALL;
}

static void configure(struct nt_tracer *tracer, const struct nt_settings *settings)
{
	struct nt_config *config = (struct nt_config *)&tracer->skel->rodata->nt_config;

	config->min_ns = settings->min_ns;
	config->tick_ns = nt_kernel_tick_ns();
	if (settings->max_late_acks)
		config->late_ack_ns = NT_SECOND_NS / settings->max_late_acks;
	config->delack_by_rto_min = nt_kernel_delack_by_rto_min();
	config->netns = settings->netns;
	config->target = target_kind(settings);
	memcpy(config->name, settings->name, sizeof(config->name));
	config->family = settings->only_v4 ? AF_INET : settings->only_v6 ? AF_INET6 : 0;
	config->ports = nt_chooses_ports(settings);
	config->all_holds = settings->all_holds;
	config->stacks = settings->stacks;
	config->timeline = settings->timeline;
	config->casts = tracer->cast.function != 0;
	config->functions = tracer->hooks.family != NT_HOOKS_TRACEPOINT;
}

/* Makes an entry take memory only while it exists. */
static void grow_on_demand(struct bpf_map *map, unsigned int most)
{
	bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_NO_PREALLOC);
	bpf_map__set_max_entries(map, most); /* the table takes 16 bytes for each at once */
}

/*
 * Gives each CPU its part of an LRU map. Before Linux 6.16 each takes 128 free entries for itself
 * at once, and where none are left the next CPU has a map of one: bpf_lru_list.c.
 */
static void size_by_cpus(struct bpf_map *map)
{
	int least = 2 * 128 * libbpf_num_possible_cpus(); /* negative: an error */

	if (least > (int)bpf_map__max_entries(map))
		bpf_map__set_max_entries(map, least);
}

/*
 * Sizes the maps: those that this run does not use are not made, and those for filters shrink to a
 * minimum without the filter.
 */
static void size_maps(struct nt_tracer *tracer, const struct nt_settings *settings)
{
	struct nagletrace_bpf *skel = tracer->skel;
	bool filtered = target_kind(settings) != NT_TARGET_ALL;

	if (nt_kernel_since(6, 1, 0)) /* tracing programs may use such maps since then */
		grow_on_demand(skel->maps.hold_hash, 1 << 16);
	bpf_map__set_autocreate(skel->maps.events, settings->timeline);
	bpf_map__set_autocreate(skel->maps.watched, settings->timeline && filtered);
	bpf_map__set_autocreate(skel->maps.stacks, settings->stacks);
	bpf_map__set_autocreate(skel->maps.stack_dumps, settings->stacks);
	bpf_map__set_autocreate(skel->maps.calls, tracer->hooks.family == NT_HOOKS_KPROBE);
	size_by_cpus(skel->maps.late_acks);
	size_by_cpus(skel->maps.share_uses);
	if (!filtered)
		bpf_map__set_max_entries(skel->maps.owned, 64);
	if (!settings->n_pids)
		bpf_map__set_max_entries(skel->maps.pids, 1);
}

/*
 * Has the arguments of a raw tracepoint program typed where the kernel has BTF: plain loads need
 * it.
 */
static int choose_program(struct nt_tracer *tracer, struct nt_kernel *kernel, size_t i,
			  struct nt_loading *loading)
{
	const struct nt_hook *hook = &nt_hooks[i];
	struct bpf_program *prog;

	prog = bpf_object__find_program_by_name(tracer->skel->obj, hook->program);
	if (!prog)
		return -ENOENT;
	if (nt_kernel_hook(kernel, hook)) {
		tracer->hooks.missing[i] = true;
		return 0;
	}
	bpf_program__set_autoload(prog, true);
	if (!kernel->hooks[i].btf_id)
		return 0;
	return nt_loading_trace(loading, prog,
				hook->how == NT_ATTACH_RAW_TP   ? BPF_TRACE_RAW_TP
				: hook->how == NT_ATTACH_FENTRY ? BPF_TRACE_FENTRY
								: BPF_TRACE_FEXIT,
				kernel->hooks[i].btf_id);
}

static int choose_programs(struct nt_tracer *tracer, struct nt_kernel *kernel,
			   const struct nt_settings *settings, struct nt_loading *loading)
{
	struct bpf_program *prog;
	int err;

	bpf_object__for_each_program (prog, tracer->skel->obj)
		bpf_program__set_autoload(prog, false);
	for (size_t i = 0; i < nt_n_hooks; i++) {
		if (!hook_in_family(&nt_hooks[i], tracer->hooks.family, settings))
			continue;
		err = choose_program(tracer, kernel, i, loading);
		if (err)
			return err;
	}
	bpf_program__set_autoload(tracer->skel->progs.dump_owners, tracer->typed);
	/* bpf_loop() is older than bpf_rdonly_cast() */
	bpf_program__set_autoload(tracer->skel->progs.dump_namespaces, tracer->cast.function);
	bpf_program__set_autoload(tracer->skel->progs.dump_namespaces_unrolled,
				  tracer->typed && !tracer->cast.function);
	bpf_program__set_autoload(tracer->skel->progs.dump_kept,
				  tracer->typed && settings->counts_kept);
	return 0;
}

/* Makes a call that stands for bpf_rdonly_cast() one of the kernel's function. */
static void place_cast(struct bpf_insn *insn, const struct nt_cast *cast)
{
	if (insn->code == (BPF_JMP | BPF_CALL) && !insn->src_reg &&
	    insn->imm == NT_CALL_RDONLY_CAST) {
		insn->src_reg = BPF_PSEUDO_KFUNC_CALL;
		insn->imm = cast->function;
	} else if (BPF_OP(insn->code) == BPF_MOV && insn->imm == NT_TYPE_TCP_SOCK) {
		insn->imm = cast->tcp_sock;
	}
}

static int place_casts(struct bpf_program *prog, const struct nt_cast *cast)
{
	size_t n = bpf_program__insn_cnt(prog);
	struct bpf_insn *insns = calloc(n, sizeof(*insns));
	int err;

	if (!insns)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		insns[i] = bpf_program__insns(prog)[i];
		place_cast(&insns[i], cast);
	}
	err = bpf_program__set_insns(prog, insns, n);
	free(insns);
	return err;
}

static int place_all_casts(struct nt_tracer *tracer)
{
	struct bpf_program *prog;
	int err = 0;

	bpf_object__for_each_program (prog, tracer->skel->obj) {
		if (!err && tracer->cast.function && bpf_program__autoload(prog))
			err = place_casts(prog, &tracer->cast);
	}
	return err;
}

/* Makes the rows of those holds that find no other room. */
static int make_slow_rows(const struct nt_tracer *tracer)
{
	const struct nt_slow none = {0};
	int err = 0;

	for (__u32 reason = 1; reason < NT_HOLD_REASONS && !err; reason++) {
		struct nt_slow_key key = {.reason = reason};

		err = bpf_map__update_elem(tracer->skel->maps.slow_holds, &key, sizeof(key), &none,
					   sizeof(none), BPF_ANY);
	}
	return err;
}

static int load_opened(struct nt_tracer *tracer, struct nt_kernel *kernel,
		       const struct nt_settings *settings, struct nt_loading *loading)
{
	int err = choose_programs(tracer, kernel, settings, loading);

	if (!err)
		err = place_all_casts(tracer);
	if (!err)
		err = nt_loading_types(loading, tracer->skel->obj);
	if (!err) {
		configure(tracer, settings);
		size_maps(tracer, settings);
		err = nagletrace_bpf__load(tracer->skel);
		/* libbpf takes a feature for missing if it could not try it for lack of memory */
		if (!err && !tracer->skel->bss)
			err = -ENOMEM;
		if (!err)
			err = make_slow_rows(tracer);
	}
	return err;
}

/* Opens the programs, autoload as their sections have it. Returns NULL and sets errno on failure.
 */
static struct nagletrace_bpf *open_programs(const struct bpf_object_open_opts *opts, bool direct)
{
	struct nagletrace_bpf *skel = calloc(1, sizeof(*skel));
	int err = skel ? nagletrace_bpf__create_skeleton(skel) : -ENOMEM;

	if (!err && !direct)
		skel->skeleton->data = (void *)probed_bpf__elf_bytes(&skel->skeleton->data_sz);
	if (!err)
		err = bpf_object__open_skeleton(skel->skeleton, opts);
	if (!err)
		return skel;
	nagletrace_bpf__destroy(skel);
	errno = -err;
	return NULL;
}

static int load_once(struct nt_tracer *tracer, struct nt_kernel *kernel,
		     const struct nt_settings *settings, bool direct)
{
	LIBBPF_OPTS(bpf_object_open_opts, open_opts);
	struct nt_loading loading;
	int err, ended;

	nt_loading_begin(&loading, kernel->btf, settings->btf, settings->verbose);
	open_opts.btf_custom_path = loading.btf;
	tracer->skel = open_programs(&open_opts, direct);
	err = tracer->skel ? load_opened(tracer, kernel, settings, &loading) : -errno;
	ended = nt_loading_end(&loading);
	err = err ? err : ended;
	if (err) {
		nagletrace_bpf__destroy(tracer->skel);
		tracer->skel = NULL;
	}
	return err;
}

/* Loads the programs that load from sockets directly, or, where the verifier refuses that, the
 * others. */
static int load(struct nt_tracer *tracer, struct nt_kernel *kernel,
		const struct nt_settings *settings)
{
	bool direct = tracer->typed &&
		      (tracer->hooks.family != NT_HOOKS_TRACEPOINT || tracer->cast.function);
	int err = load_once(tracer, kernel, settings, direct);

	if (!err || err == -EPERM || err == -ENOMEM || !direct)
		return err;
	return load_once(tracer, kernel, settings, false);
}

static int attach_hook(struct nt_tracer *tracer, size_t i, const char *target)
{
	const struct nt_hook *hook = &nt_hooks[i];
	struct bpf_program *prog =
		bpf_object__find_program_by_name(tracer->skel->obj, hook->program);
	struct bpf_link *link;

	switch (hook->how) {
	case NT_ATTACH_RAW_TP:
		link = tracer->typed ? bpf_program__attach_trace(prog)
				     : bpf_program__attach_raw_tracepoint(prog, target);
		break;
	case NT_ATTACH_FENTRY:
	case NT_ATTACH_FEXIT:
		link = bpf_program__attach_trace(prog);
		break;
	default:
		link = bpf_program__attach_kprobe(prog, hook->how == NT_ATTACH_KRETPROBE, target);
	}
	if (!link)
		return -errno;
	tracer->links[i] = link;
	tracer->targets[i] = target;
	return 0;
}

/*
 * A tracepoint's program recognises a socket's timers by their functions. on_tcp_destroy_sock reads
 * them from the first TCP socket that is destroyed: this one. So it needs no symbol table, which
 * may be hidden.
 */
static int teach_timers(const struct nt_tracer *tracer)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	close(fd);
	return tracer->skel->bss->delack_timer_function ? 0 : -ENOENT;
}

static int attach(struct nt_tracer *tracer, struct nt_kernel *kernel,
		  const struct nt_settings *settings, const char **failed)
{
	for (size_t i = 0; i < nt_n_hooks; i++) {
		const struct nt_hook *hook = &nt_hooks[i];
		int err;

		if (!hook_in_family(hook, tracer->hooks.family, settings) ||
		    tracer->hooks.missing[i])
			continue;
		*failed = hook->target;
		err = attach_hook(tracer, i, kernel->hooks[i].target);
		if (!err && !strcmp(hook->program, "on_tcp_destroy_sock")) {
			*failed = "the timers of TCP sockets, with a socket of our own";
			err = teach_timers(tracer);
		}
		if (err && hook->required)
			return err;
		tracer->hooks.missing[i] = err;
	}
	return 0;
}

static bool family_refused(struct nt_kernel *kernel, enum nt_hooks family, int cause,
			   struct nt_error *error)
{
	char reason[160];

	nt_kernel_explain(kernel, cause, reason, sizeof(reason));
	if (cause == -NT_E_LOCKDOWN)
		return nt_error_set(error, NT_EXIT_KERNEL, "%s", reason);
	return nt_error_set(error, cause == -NT_E_PARANOID ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL,
			    "--hooks %s: %s; `nagletrace check` shows what can be used",
			    nt_family_name(family), reason);
}

/* Says why the cheapest family was not taken, or that it was. */
static void explain_choice(struct nt_hook_set *hooks, struct nt_kernel *kernel)
{
	char reason[120];

	if (hooks->family == NT_HOOKS_TRACEPOINT && !kernel->fentry.known) {
		snprintf(hooks->why, sizeof(hooks->why), "they cost least");
		return;
	}
	if (hooks->family != NT_HOOKS_TRACEPOINT && hooks->family != NT_HOOKS_KPROBE)
		return;
	nt_kernel_explain(kernel, nt_kernel_family(kernel, NT_HOOKS_FUNCTION), reason,
			  sizeof(reason));
	snprintf(hooks->why, sizeof(hooks->why), "%s: %s",
		 hooks->family == NT_HOOKS_KPROBE ? "fentry" : "function hooks", reason);
}

static bool choose_family(struct nt_hook_set *hooks, struct nt_kernel *kernel,
			  const struct nt_settings *settings, struct nt_error *error)
{
	int cause;

	hooks->family = settings->hooks;
	if (settings->hooks == NT_HOOKS_AUTO) {
		hooks->family = nt_kernel_choose(kernel);
		explain_choice(hooks, kernel);
	}
	if (hooks->family == NT_HOOKS_AUTO) {
		cause = nt_kernel_family(kernel, NT_HOOKS_KPROBE);
		if (cause == -NT_E_PARANOID)
			return family_refused(kernel, NT_HOOKS_KPROBE, cause, error);
		return nt_error_set(error, NT_EXIT_KERNEL,
				    "this kernel takes neither function hooks nor tracepoints that "
				    "suffice; `nagletrace check` shows what is missing");
	}
	cause = nt_kernel_family(kernel, hooks->family);
	return !cause || family_refused(kernel, hooks->family, cause, error);
}

/* Says that the kernel refused, with -errno, to do this. */
static bool refused(struct nt_kernel *kernel, int cause, const char *what, const char *remedy,
		    struct nt_error *error)
{
	char reason[120];

	nt_kernel_explain(kernel, cause, reason, sizeof(reason));
	return nt_error_set(error, cause == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL,
			    "cannot %s: %s%s", what, reason, remedy);
}

static bool load_failed(struct nt_kernel *kernel, const struct nt_settings *settings, int cause,
			struct nt_error *error)
{
	char file[128], remedy[256] = "; -v shows the kernel's words";

	if (settings->btf) {
		nt_escape(settings->btf, strlen(settings->btf), file, sizeof(file));
		snprintf(remedy, sizeof(remedy),
			 "; is --btf %s the BTF of kernel %s? -v shows the kernel's words", file,
			 kernel->uname.release);
	}
	return refused(kernel, cause, "load the BPF programs", remedy, error);
}

static bool open_with_kernel(struct nt_tracer *tracer, struct nt_kernel *kernel,
			     const struct nt_settings *settings, struct nt_error *error)
{
	const char *failed = "";
	char what[80];
	int cause;

	if (!kernel->btf && !settings->btf)
		return nt_error_set(
			error, NT_EXIT_KERNEL,
			"this kernel has no BTF at /sys/kernel/btf/vmlinux; give --btf FILE with the "
			"BTF of kernel %s (from its debug package or a BTF archive)",
			kernel->uname.release);
	if (!choose_family(&tracer->hooks, kernel, settings, error))
		return false;
	tracer->typed = kernel->btf;
	tracer->cast = kernel->cast;
	cause = load(tracer, kernel, settings);
	if (cause)
		return load_failed(kernel, settings, cause, error);
	cause = attach(tracer, kernel, settings, &failed);
	if (!cause)
		return true;
	nt_tracer_close(tracer);
	snprintf(what, sizeof(what), "hook %s", failed);
	return refused(kernel, cause, what, "", error);
}

bool nt_tracer_open(struct nt_tracer *tracer, const struct nt_settings *settings,
		    struct nt_error *error)
{
	struct nt_kernel kernel;
	bool open;

	memset(tracer, 0, sizeof(*tracer));
	nt_quiet_libbpf(settings->verbose);
	if (!nt_permission_check(error))
		return false;
	nt_kernel_probe(&kernel);
	kernel.again = settings->standby;
	open = open_with_kernel(tracer, &kernel, settings, error);
	nt_kernel_free(&kernel);
	return open;
}

void nt_tracer_close(struct nt_tracer *tracer)
{
	for (size_t i = 0; i < NT_MAX_HOOKS; i++) {
		bpf_link__destroy(tracer->links[i]);
		tracer->links[i] = NULL;
	}
	nagletrace_bpf__destroy(tracer->skel);
	tracer->skel = NULL;
}

/*
 * Returns how often the kernel hit a kprobe and did not run its program:
 * bpf_perf_link_fill_kprobe(), kernel/bpf/syscall.c. 0 for other links, and if the kernel does not
 * count it.
 */
static uint64_t probe_missed(const struct bpf_link *link)
{
	enum {
		PERF_EVENT_LINK = 7,
		KPROBE = 3,
		KRETPROBE = 4
	};
	/* these fields are from struct bpf_link_info, which libbpf's own headers may lack */
	struct {
		__u32 type, id, prog_id, pad;
		__u32 event, pad_event;
		__u64 name;
		__u32 name_size, offset;
		__u64 addr, missed;
	} info = {};
	__u32 size = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_link__fd(link), &info, &size) ||
	    info.type != PERF_EVENT_LINK || (info.event != KPROBE && info.event != KRETPROBE))
		return 0;
	return info.missed;
}

static void detach_hook(struct nt_tracer *tracer, size_t i)
{
	tracer->missed_detached += probe_missed(tracer->links[i]);
	bpf_link__destroy(tracer->links[i]);
	tracer->links[i] = NULL;
}

int nt_tracer_detach(struct nt_tracer *tracer, unsigned int step)
{
	int n = 0;

	/*
	 * detach from the end: a function's return before its entry, or returns would come without
	 * an entry
	 */
	for (size_t i = nt_n_hooks; i-- > 0;) {
		if (!tracer->targets[i] || tracer->hooks.detached[i] ||
		    (step && nt_hooks[i].detach_step != step))
			continue;
		tracer->hooks.detached[i] = true;
		if (!tracer->links[i]) /* nt_tracer_see_reads() has detached it */
			continue;
		detach_hook(tracer, i);
		n++;
	}
	return n;
}

int nt_tracer_see_reads(struct nt_tracer *tracer, bool wanted)
{
	for (size_t i = 0; i < nt_n_hooks; i++) {
		if (nt_hooks[i].need != NT_FOR_LATE_ACKS ||
		    !(nt_hooks[i].families & NT_FAMILY(tracer->hooks.family)))
			continue;
		if (!wanted && tracer->links[i])
			detach_hook(tracer, i);
		if (!wanted || tracer->links[i])
			return 0;
		if (!tracer->targets[i] || tracer->hooks.detached[i])
			return -ENOENT;
		return attach_hook(tracer, i, tracer->targets[i]);
	}
	return 0;
}

/* From the end, as nt_tracer_detach(). */
static void detach_all(struct nt_tracer *tracer)
{
	for (size_t i = nt_n_hooks; i-- > 0;)
		if (tracer->links[i])
			detach_hook(tracer, i);
}

/* Deletes all entries of a map that this run has. */
static int empty(const struct bpf_map *map)
{
	int fd = bpf_map__fd(map), err;
	__u64 key, next;

	if (!bpf_map__autocreate(map))
		return 0;
	/* the next key is asked for while this one is there: else the search begins anew */
	err = bpf_map_get_next_key(fd, NULL, &next);
	while (!err) {
		key = next;
		err = bpf_map_get_next_key(fd, &key, &next);
		if (bpf_map_delete_elem(fd, &key) && errno != ENOENT)
			return -errno;
	}
	return err == -ENOENT ? 0 : err;
}

int nt_tracer_pause(struct nt_tracer *tracer)
{
	struct nagletrace_bpf *skel = tracer->skel;
	const struct bpf_map *maps[] = {skel->maps.hold_hash, skel->maps.owned};
	int err = 0;

	detach_all(tracer);
	/* a program that still runs on another CPU would leave something behind */
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	for (size_t i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
		err = empty(maps[i]);
	memset(skel->bss->buckets, 0, sizeof(skel->bss->buckets));
	return err;
}

int nt_tracer_resume(struct nt_tracer *tracer, const char **failed)
{
	for (size_t i = 0; i < nt_n_hooks; i++) {
		int err;

		if (!tracer->targets[i])
			continue;
		*failed = tracer->targets[i];
		err = attach_hook(tracer, i, tracer->targets[i]);
		if (err) {
			/* a hold that began by now would last until the next attempt */
			nt_tracer_pause(tracer);
			return err;
		}
	}
	return 0;
}

static int sum_totals(const struct nt_tracer *tracer, struct nt_totals *sum)
{
	const size_t words = sizeof(*sum) / sizeof(__u64);
	int cpus = libbpf_num_possible_cpus();
	struct nt_totals *each;
	__u32 zero = 0;
	int err;

	if (cpus < 0)
		return cpus;
	each = calloc(cpus, sizeof(*each));
	if (!each)
		return -ENOMEM;
	err = bpf_map__lookup_elem(tracer->skel->maps.totals, &zero, sizeof(zero), each,
				   cpus * sizeof(*each), 0);
	for (int cpu = 0; !err && cpu < cpus; cpu++)
		for (size_t i = 0; i < words; i++)
			((__u64 *)sum)[i] += ((const __u64 *)&each[cpu])[i];
	free(each);
	for (int cpu = 0; cpu < NT_CPUS; cpu++)
		sum->writes += tracer->skel->bss->often[cpu].writes;
	return err;
}

/*
 * Leaves out rows that have no hold yet. As the map gets full, those that have names and did not
 * grow for ten minutes make room.
 */
static int read_slow(const struct nt_tracer *tracer, struct nt_counts *counts)
{
	const uint64_t idle_ns = 600000000000ULL;
	int fd = bpf_map__fd(tracer->skel->maps.slow_holds);
	struct nt_slow_key keys[NT_SLOW_ROWS];
	struct nt_slow rows[NT_SLOW_ROWS];
	__u32 n = NT_SLOW_ROWS, place;
	int err = bpf_map_lookup_batch(fd, NULL, &place, keys, rows, &n, NULL);
	uint64_t now_ns = nt_now_ns();

	if (err && err != -ENOENT) /* that says that these are all */
		return err;
	for (__u32 i = 0; i < n; i++) {
		if (!rows[i].holds)
			continue;
		counts->slow[counts->n_slow++] =
			(struct nt_slow_row){.key = keys[i], .slow = rows[i]};
		if (n > NT_SLOW_ROWS / 4 * 3 && (keys[i].uid || keys[i].comm[0]) &&
		    now_ns > rows[i].last_ns + idle_ns)
			bpf_map_delete_elem(fd, &keys[i]);
	}
	return 0;
}

/* Sums the kernel's information on each program over those of hooks. */
static void sum_info(const struct nt_tracer *tracer, struct bpf_prog_info *sum)
{
	struct bpf_program *prog;

	memset(sum, 0, sizeof(*sum));
	bpf_object__for_each_program (prog, tracer->skel->obj) {
		struct bpf_prog_info info = {};
		__u32 size = sizeof(info);
		int fd = bpf_program__fd(prog);

		if (fd < 0 || bpf_program__expected_attach_type(prog) == BPF_TRACE_ITER ||
		    bpf_obj_get_info_by_fd(fd, &info, &size))
			continue;
		sum->recursion_misses += info.recursion_misses;
		sum->run_time_ns += info.run_time_ns;
	}
}

int nt_tracer_counts(const struct nt_tracer *tracer, struct nt_counts *counts)
{
	struct bpf_prog_info info;
	int err;

	memset(counts, 0, sizeof(*counts));
	err = sum_totals(tracer, &counts->totals);
	if (!err)
		err = read_slow(tracer, counts);
	sum_info(tracer, &info);
	counts->recursion_misses = info.recursion_misses + tracer->missed_detached;
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->links[i])
			counts->recursion_misses += probe_missed(tracer->links[i]);
	return err;
}

uint64_t nt_tracer_run_time_ns(const struct nt_tracer *tracer)
{
	struct bpf_prog_info info;

	sum_info(tracer, &info);
	return info.run_time_ns;
}
