// SPDX-License-Identifier: GPL-2.0
/*
 * We list the calls to refuse, not those to allow: the libraries decide which calls they make to
 * print, to allocate and to read /proc, and change them from version to version.
 * docs/privileges.md says more.
 */
#include "privileges/refusals.h"

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/fs.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

/*
 * Calls that we refuse whatever their arguments are. We skip a name that this libseccomp does not
 * know.
 */
static const char *const always[] = {
	/* other programs, and other processes */
	"execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
	"pidfd_getfd", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "kcmp",
	/* files: the tracer has already opened those that it writes */
	"creat", "truncate", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
	"symlinkat", "mkdir", "mkdirat", "mknod", "mknodat", "chmod", "fchmod", "fchmodat",
	"fchmodat2", "chown", "lchown", "fchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr",
	"setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
	"file_setattr", "utime", "utimes", "futimesat", "utimensat", "name_to_handle_at",
	"open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd",
	/* peers: the daemon's socket listens already */
	"connect", "bind", "listen",
	/* identity, namespaces, mounts */
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid",
	"setfsgid", "setgroups", "capset", "setns", "unshare", "chroot", "pivot_root", "mount",
	"umount2", "mount_setattr", "move_mount", "open_tree", "open_tree_attr", "fsopen",
	"fsconfig", "fsmount", "fspick",
	/* the kernel: its modules, clocks, keys, and calls that have had many holes */
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"swapon", "swapoff", "acct", "syslog", "settimeofday", "clock_settime", "clock_adjtime",
	"adjtimex", "sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "vhangup",
	"perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "lookup_dcookie",
	/* io_uring makes these calls and others behind the filter's back */
	"io_uring_setup", "io_uring_enter", "io_uring_register"};

/*
 * These take their arguments from memory, where a filter cannot look; without them the C library
 * uses openat() and clone().
 */
static const char *const unknown[] = {"openat2", "clone3"};

/* The bpf() commands that a running tracer uses on its maps, links and programs. */
static const uint64_t bpf_allowed = 1ULL << BPF_MAP_LOOKUP_ELEM | 1ULL << BPF_MAP_LOOKUP_BATCH |
				    1ULL << BPF_MAP_UPDATE_ELEM | 1ULL << BPF_MAP_DELETE_ELEM |
				    1ULL << BPF_MAP_GET_NEXT_KEY | 1ULL << BPF_OBJ_GET_INFO_BY_FD |
				    1ULL << BPF_ENABLE_STATS | 1ULL << BPF_ITER_CREATE |
				    1ULL << BPF_LINK_DETACH;

/* Besides, those that attach programs which are loaded, old and new. */
static const uint64_t bpf_attaching = 1ULL << BPF_RAW_TRACEPOINT_OPEN | 1ULL << BPF_LINK_CREATE;

/* Does this list, which ends with NULL, contain the name? */
static bool is_one_of(const char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

static int refuse(scmp_filter_ctx filter, uint32_t action, const char *name, unsigned int n,
		  const struct scmp_arg_cmp *when)
{
	int number = seccomp_syscall_resolve_name(name);

	return number == __NR_SCMP_ERROR ? 0
					 : seccomp_rule_add_array(filter, action, number, n, when);
}

static int refuse_when(scmp_filter_ctx filter, const char *name, struct scmp_arg_cmp when)
{
	return refuse(filter, SCMP_ACT_ERRNO(EPERM), name, 1, &when);
}

static int refuse_bpf(scmp_filter_ctx filter, bool attaches)
{
	const uint64_t allowed = bpf_allowed | (attaches ? bpf_attaching : 0);
	const unsigned int known = BPF_LINK_DETACH + 1;
	int err = refuse_when(filter, "bpf", SCMP_A0(SCMP_CMP_GE, known));

	for (unsigned int command = 0; !err && command < known; command++)
		if (!(allowed >> command & 1))
			err = refuse_when(filter, "bpf", SCMP_A0(SCMP_CMP_EQ, command));
	return err;
}

/* Refuses to open a file for anything but reading. */
static int refuse_writing(scmp_filter_ctx filter, const char *name, unsigned int flags)
{
	static const struct {
		int mask, is;
	} ways[] = {
		{O_ACCMODE, O_WRONLY}, {O_ACCMODE, O_RDWR}, {O_ACCMODE, O_ACCMODE},
		{O_CREAT, O_CREAT},    {O_TRUNC, O_TRUNC},
	};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(ways) / sizeof(ways[0]); i++)
		err = refuse_when(filter, name,
				  SCMP_CMP(flags, SCMP_CMP_MASKED_EQ, ways[i].mask, ways[i].is));
	return err;
}

/* Refuses calls that depend on their arguments. */
static int refuse_some(scmp_filter_ctx filter, const char *const *but, bool attaches)
{
	static const int new_spaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
				      CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
	static const char *const signals[] = {"kill", "tkill", "tgkill"};
	static const struct {
		const char *name;
		unsigned int request;
	} requests[] = {
		/* fake input: the terminal would take it for typed or pasted by its user */
		{"ioctl", TIOCSTI},
		{"ioctl", TIOCLINUX},
		/* attributes of a file that we may only read */
		{"ioctl", FS_IOC_SETFLAGS},
		{"ioctl", FS_IOC_FSSETXATTR},
		/* a signal of any kind to another process, once a descriptor is ready */
		{"fcntl", F_SETSIG},
		{"fcntl", F_SETOWN},
		{"fcntl", F_SETOWN_EX},
		{"ioctl", FIOSETOWN},
		{"ioctl", SIOCSPGRP},
	};
	int err = refuse_bpf(filter, attaches);

	if (!err)
		err = refuse_writing(filter, "open", 1);
	if (!err)
		err = refuse_writing(filter, "openat", 2);
	for (size_t i = 0; !err && i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!is_one_of(but, signals[i]))
			err = refuse_when(filter, signals[i], SCMP_A0(SCMP_CMP_NE, getpid()));
	for (int bit = 0; !err && bit < 31; bit++)
		if (new_spaces >> bit & 1)
			err = refuse_when(filter, "clone",
					  SCMP_A0(SCMP_CMP_MASKED_EQ, 1U << bit, 1U << bit));
	/* we report to the service manager by datagrams on a unix socket */
	if (!err)
		err = refuse_when(filter, "socket", SCMP_A0(SCMP_CMP_NE, AF_UNIX));
	for (size_t i = 0; !err && i < sizeof(requests) / sizeof(requests[0]); i++)
		err = refuse_when(filter, requests[i].name,
				  SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, requests[i].request));
	/* a process may change its own limits, as process 0 */
	if (!err)
		err = refuse_when(filter, "prlimit64", SCMP_A0(SCMP_CMP_NE, 0));
	return err;
}

static int fill(scmp_filter_ctx filter, const char *const *but, bool attaches)
{
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(always) / sizeof(always[0]); i++)
		if (!is_one_of(but, always[i]))
			err = refuse(filter, SCMP_ACT_ERRNO(EPERM), always[i], 0, NULL);
	for (size_t i = 0; !err && i < sizeof(unknown) / sizeof(unknown[0]); i++)
		if (!is_one_of(but, unknown[i]))
			err = refuse(filter, SCMP_ACT_ERRNO(ENOSYS), unknown[i], 0, NULL);
	return err ? err : refuse_some(filter, but, attaches);
}

int nt_refuse_system_calls(const char *const *but, bool attaches)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int err;

	if (!filter)
		return -ENOMEM;
	err = fill(filter, but, attaches);
	/* search a tree instead of walking along the list, if libseccomp can (2.5) */
	seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err;
}

void nt_refuse_system_calls_or_report(const char *const *but, bool attaches)
{
	int err = nt_refuse_system_calls(but, attaches);

	if (err)
		nt_log("cannot install the seccomp filter: %s; goes on without it", strerror(-err));
}
