// SPDX-License-Identifier: GPL-2.0
#include "attach/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include "privileges/privileges.h"

#define BTF_PATH         "/sys/kernel/btf/vmlinux"
#define LOCKDOWN_PATH    "/sys/kernel/security/lockdown"
#define PARANOID_PATH    "/proc/sys/kernel/perf_event_paranoid"
#define KPROBE_TYPE_PATH "/sys/bus/event_source/devices/kprobe/type"
#define MOST_LOCKED      (64ULL << 20)          /* more than all maps take */
#define PROBED_FUNCTION  "tcp_send_delayed_ack" /* in every kernel, the same prototype */

static const struct bpf_insn return_zero[] = {
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
	{.code = BPF_JMP | BPF_EXIT},
};

static int read_line(const char *path, char *line, size_t size)
{
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	n = read(fd, line, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return 0;
}

/* The file reads "none [integrity] confidentiality": the one in brackets is in force. */
static void read_lockdown(char mode[32])
{
	char line[128], *open_bracket, *close_bracket;

	mode[0] = '\0';
	if (read_line(LOCKDOWN_PATH, line, sizeof(line)))
		return;
	open_bracket = strchr(line, '[');
	close_bracket = strchr(line, ']');
	if (!open_bracket || !close_bracket || close_bracket < open_bracket)
		return;
	*close_bracket = '\0';
	snprintf(mode, 32, "%s", open_bracket + 1);
}

/* Loads an empty program for the function of that BTF ID; returns its descriptor or -errno. */
static int load_empty_fentry(int id, enum nt_attach how)
{
	LIBBPF_OPTS(bpf_prog_load_opts, settings,
		    .expected_attach_type =
			    how == NT_ATTACH_FEXIT ? BPF_TRACE_FEXIT : BPF_TRACE_FENTRY);
	int fd;

	if (id < 0)
		return -ENOENT;
	settings.attach_btf_id = id;
	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "nt_probe", "GPL", return_zero, 2, &settings);
	return fd < 0 ? -errno : fd;
}

/* What was opened to see whether the kernel lets us: returns 0 or -errno. */
static int tried(int fd)
{
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int function_id(const struct btf *btf, const char *name)
{
	return btf__find_by_name_kind(btf, name, BTF_KIND_FUNC);
}

/*
 * Loading is not enough: some kernels refuse only when the trampoline is to be placed. Before 5.13
 * a program forgets its target once it is detached: bpf_tracing_prog_attach(),
 * kernel/bpf/syscall.c.
 */
static int try_fentry(const struct btf *btf, bool again)
{
	int prog, err;

	if (!btf)
		return -ENODATA;
	prog = load_empty_fentry(function_id(btf, PROBED_FUNCTION), NT_ATTACH_FENTRY);
	if (prog < 0)
		return prog;
	err = tried(bpf_raw_tracepoint_open(NULL, prog));
	if (!err && again)
		err = tried(bpf_raw_tracepoint_open(NULL, prog)) == -ENOENT ? -NT_E_ONCE : 0;
	close(prog);
	return err;
}

static int open_kprobe(const char *function)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	char line[32];
	int fd, err = read_line(KPROBE_TYPE_PATH, line, sizeof(line));

	if (err)
		return err;
	attr.type = atoi(line);
	attr.config1 = (__u64)(unsigned long)function; /* kprobe_func */
	fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * The kernels of Debian and Ubuntu know level 3 and more, at which perf_event_open() needs
 * CAP_SYS_ADMIN.
 */
static bool paranoid(void)
{
	char line[16];

	return !read_line(PARANOID_PATH, line, sizeof(line)) && atoi(line) > 2 &&
	       !nt_privileges_has(CAP_EFFECTIVE, CAP_SYS_ADMIN);
}

static int try_kprobe(void)
{
	int event = open_kprobe(PROBED_FUNCTION);

	if (event < 0)
		return event == -EACCES && paranoid() ? -NT_E_PARANOID : event;
	close(event);
	return tried(bpf_prog_load(BPF_PROG_TYPE_KPROBE, "nt_probe", "GPL", return_zero, 2, NULL));
}

/*
 * Finds the tracepoints of all hooks, and what struct nt_cast has, in one pass over the kernel's
 * types: a search for each takes as long.
 */
static void find_types(struct nt_kernel *k)
{
	const char prefix[] = "btf_trace_";
	const size_t begins = sizeof(prefix) - 1;
	unsigned int n = btf__type_cnt(k->btf);

	for (unsigned int id = 1; id < n; id++) {
		const struct btf_type *type = btf__type_by_id(k->btf, id);
		const char *name = btf__name_by_offset(k->btf, type->name_off);

		if (btf_is_func(type) && !strcmp(name, "bpf_rdonly_cast"))
			k->cast.function = id;
		if (btf_is_struct(type) && !strcmp(name, "tcp_sock"))
			k->cast.tcp_sock = id;
		if (!btf_is_typedef(type) || strncmp(name, prefix, begins))
			continue;
		for (size_t i = 0; i < nt_n_hooks; i++)
			if (nt_hooks[i].how == NT_ATTACH_RAW_TP &&
			    !strcmp(name + begins, nt_hooks[i].target))
				k->traced[i] = id;
	}
}

void nt_kernel_probe(struct nt_kernel *k)
{
	memset(k, 0, sizeof(*k));
	uname(&k->uname);
	read_lockdown(k->lockdown);
	if (access(BTF_PATH, R_OK) == 0)
		k->btf = btf__parse_raw(BTF_PATH);
	if (k->btf)
		find_types(k);
}

/* To place a hook patches the kernel, so one of each kind is tried when somebody asks. */
static int fentry_refused(struct nt_kernel *k)
{
	if (!k->fentry.known)
		k->fentry.err = try_fentry(k->btf, k->again);
	k->fentry.known = true;
	return k->fentry.err;
}

static int kprobe_refused(struct nt_kernel *k)
{
	if (!k->kprobe.known)
		k->kprobe.err = try_kprobe();
	k->kprobe.known = true;
	return k->kprobe.err;
}

void nt_kernel_free(struct nt_kernel *k)
{
	btf__free(k->btf);
	k->btf = NULL;
}

static int hook_there(struct nt_kernel *k, const struct nt_hook *hook, const char *target,
		      int *btf_id)
{
	int fd, err;

	switch (hook->how) {
	case NT_ATTACH_RAW_TP:
		/* no tracepoint has an alternative; without BTF, attaching will show */
		*btf_id = k->traced[hook - nt_hooks];
		return k->btf && !*btf_id ? -ENOENT : 0;
	case NT_ATTACH_FENTRY:
	case NT_ATTACH_FEXIT:
		err = fentry_refused(k);
		if (err)
			return err;
		*btf_id = function_id(k->btf, target);
		fd = load_empty_fentry(*btf_id, hook->how);
		break;
	default:
		err = kprobe_refused(k);
		if (err)
			return err;
		fd = open_kprobe(target);
		break;
	}
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static bool locked_down(const struct nt_kernel *k)
{
	return !strcmp(k->lockdown, "confidentiality");
}

int nt_kernel_hook(struct nt_kernel *k, const struct nt_hook *hook)
{
	size_t i = hook - nt_hooks;

	if (locked_down(k))
		return -NT_E_LOCKDOWN;
	if (!k->hooks[i].known) {
		k->hooks[i].target = hook->target;
		k->hooks[i].err = hook_there(k, hook, hook->target, &k->hooks[i].btf_id);
		if (k->hooks[i].err && hook->alternative &&
		    !hook_there(k, hook, hook->alternative, &k->hooks[i].btf_id)) {
			k->hooks[i].err = 0;
			k->hooks[i].target = hook->alternative;
		}
		k->hooks[i].known = true;
	}
	return k->hooks[i].err;
}

int nt_kernel_family(struct nt_kernel *k, enum nt_hooks family)
{
	int err = 0;

	if (family == NT_HOOKS_FUNCTION)
		err = fentry_refused(k);
	else if (family == NT_HOOKS_KPROBE)
		err = kprobe_refused(k);
	for (size_t i = 0; !err && i < nt_n_hooks; i++)
		if (nt_hooks[i].required && nt_hooks[i].families & NT_FAMILY(family))
			err = nt_kernel_hook(k, &nt_hooks[i]);
	return err;
}

/* Does the kernel offer all hooks of the family that every trace uses, also those we can do
 * without? */
static bool is_whole(struct nt_kernel *k, enum nt_hooks family)
{
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (nt_hooks[i].need == NT_ALWAYS && nt_hooks[i].families & NT_FAMILY(family) &&
		    nt_kernel_hook(k, &nt_hooks[i]))
			return false;
	return true;
}

enum nt_hooks nt_kernel_choose(struct nt_kernel *k)
{
	static const enum nt_hooks order[] = {NT_HOOKS_FUNCTION, NT_HOOKS_KPROBE,
					      NT_HOOKS_TRACEPOINT};

	/* it costs least, nt_kernel_cost(); under that lockdown any family says what is wrong */
	if (is_whole(k, NT_HOOKS_TRACEPOINT) || locked_down(k))
		return NT_HOOKS_TRACEPOINT;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (!nt_kernel_family(k, order[i]))
			return order[i];
	return NT_HOOKS_AUTO;
}

#define COST(pingpong, connections, churn, kernel)                                  \
	"+" #pingpong " % ping-pong, +" #connections " % 100 connections, +" #churn \
	" % churn on Linux " #kernel

const char *nt_kernel_cost(enum nt_hooks family)
{
	/* of each family the newest kernel first */
	static const struct {
		enum nt_hooks family;
		unsigned int major, minor;
		const char *text;
	} costs[] = {
		{NT_HOOKS_TRACEPOINT, 7, 2, COST(2, 3, 1, 7.2)},
		{NT_HOOKS_TRACEPOINT, 6, 12, COST(2, 2, 1, 6.12)},
		{NT_HOOKS_FUNCTION, 7, 2, COST(3, 5, 2, 7.2)},
		{NT_HOOKS_FUNCTION, 6, 12, COST(5, 5, 1, 6.12)},
		{NT_HOOKS_FUNCTION, 6, 1, COST(3, 5, 2, 6.1)},
		{NT_HOOKS_KPROBE, 6, 12, COST(19, 22, 5, 6.12)},
	};
	const char *text = "";

	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
		if (costs[i].family != family)
			continue;
		text = costs[i].text;
		if (nt_kernel_since(costs[i].major, costs[i].minor, 0))
			break;
	}
	return text;
}

/* Tries to make a map, without libbpf, which would raise the limit first. Returns 0 or -errno. */
static int try_map(void)
{
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY,
			       .key_size = sizeof(__u32),
			       .value_size = 8,
			       .max_entries = 1};

	return tried(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

/*
 * Before 5.11 the kernel charges maps and programs against the limit of locked memory: under a
 * limit of 0 no map can be made.
 */
static bool maps_are_locked_memory(const struct rlimit *limit)
{
	const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit->rlim_max};
	int err;

	if (setrlimit(RLIMIT_MEMLOCK, &none))
		return false;
	err = try_map();
	setrlimit(RLIMIT_MEMLOCK, limit);
	return err == -EPERM && !try_map();
}

static bool check_locked_memory(struct nt_error *error)
{
	const struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur >= MOST_LOCKED ||
	    !maps_are_locked_memory(&limit) || !setrlimit(RLIMIT_MEMLOCK, &all))
		return true;
	return nt_error_set(
		error, NT_EXIT_PERMISSION,
		"not permitted: this kernel counts BPF maps as locked memory, of which %llu KiB are "
		"allowed; run as root, add CAP_SYS_RESOURCE, or raise the limit (`ulimit -l "
		"unlimited`, LimitMEMLOCK=infinity)",
		(unsigned long long)limit.rlim_cur / 1024);
}

bool nt_permission_check(struct nt_error *error)
{
	bool bpf = nt_privileges_has(CAP_EFFECTIVE, CAP_BPF),
	     perfmon = nt_privileges_has(CAP_EFFECTIVE, CAP_PERFMON);

	if (nt_privileges_has(CAP_EFFECTIVE, CAP_SYS_ADMIN) || (bpf && perfmon))
		return check_locked_memory(error);
	return nt_error_set(
		error, NT_EXIT_PERMISSION,
		"not permitted: %s%s%s missing; run as root, with sudo, or give the capabilities",
		bpf ? "" : "CAP_BPF", !bpf && !perfmon ? " and " : "",
		perfmon ? "" : "CAP_PERFMON");
}

void nt_kernel_explain(const struct nt_kernel *k, int err, char *text, size_t size)
{
	static const char unsupported[] = "this kernel or architecture does not support it";
	static const char refused[] =
		"refused by the kernel (its configuration or a security policy)";
	static const struct {
		int err;
		const char *means;
	} known[] = {
		{ENODATA, "the kernel has no BTF of its own (CONFIG_DEBUG_INFO_BTF)"},
		{ENOENT, "this kernel does not have it"},
		{EPERM, refused},
		{EACCES, refused},
		{NT_E_ONCE, "before Linux 5.13 they are attached only once, and --standby attaches "
			    "again"},
		{NT_E_LOCKDOWN, "kernel lockdown is confidentiality: BPF may not read kernel "
				"memory; boot with lockdown=integrity or none"},
		{NT_E_PARANOID, "perf_event_paranoid is above 2: kprobes need CAP_SYS_ADMIN, or "
				"`sysctl kernel.perf_event_paranoid=2`"},
		{524, unsupported}, /* ENOTSUPP, which libc does not know */
		{EINVAL, unsupported},
		{EOPNOTSUPP, unsupported},
	};

	libbpf_strerror(err, text, size);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].err == -err)
			snprintf(text, size, "%s", known[i].means);
	if ((err == -EPERM || err == -EACCES) && k->lockdown[0] && strcmp(k->lockdown, "none"))
		snprintf(text, size, "refused by the kernel (lockdown is %s)", k->lockdown);
}

unsigned long long nt_kernel_tick_ns(void)
{
	struct timespec tick;

	if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) || tick.tv_sec)
		return 4000000;
	return tick.tv_nsec;
}

bool nt_kernel_since(unsigned int major, unsigned int minor, unsigned int patch)
{
	unsigned int has[3] = {0};
	struct utsname name;

	if (uname(&name))
		return false;
	sscanf(name.release, "%u.%u.%u", &has[0], &has[1], &has[2]);
	return (has[0] << 20 | has[1] << 10 | has[2]) >= (major << 20 | minor << 10 | patch);
}

bool nt_kernel_delack_by_rto_min(void)
{
	return nt_kernel_since(6, 6, 10);
}
