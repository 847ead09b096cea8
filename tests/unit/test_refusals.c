// SPDX-License-Identifier: GPL-2.0
// links: userspace/privileges/refusals.c userspace/base/log.c
#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "unit.h"
#include "privileges/refusals.h"

/* What a child under the filter found: the first call that was not answered as expected. */
struct found {
	char text[128];
};

static struct found *found;

/* Whom a descriptor's signals are to go to. */
static int somebody = 1;

/* A call and what errno it is to give; 0: anything but EPERM and ENOSYS. */
struct call {
	const char *name;
	long number, a, b, c;
	int expected;
};

/* Arguments that make each fail by itself too, with another errno or harmlessly, if it came
 * through. */
#define REFUSED(name, ...)                     \
	{                                      \
#name, SYS_##name, __VA_ARGS__ \
	}
#define BPF_COMMAND(c, errno)               \
	{                                   \
#c, SYS_bpf, c, 0, 0, errno \
	}

static void try(const struct call *call)
{
	long result;
	bool as_expected;

	errno = 0;
	result = syscall(call->number, call->a, call->b, call->c, 0, 0, 0);
	as_expected = call->expected ? result == -1 && errno == call->expected
				     : errno != EPERM && errno != ENOSYS;
	if (!as_expected && !found->text[0])
		snprintf(found->text, sizeof(found->text), "%s(%ld, %ld): %ld, %s", call->name,
			 call->a, call->b, result, strerror(errno));
}

static void in_a_child_that(bool attaches, const struct call *calls, size_t n)
{
	pid_t child;
	int status;

	found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_ptr_not_equal(found, MAP_FAILED);
	memset(found, 0, sizeof(*found));
	child = fork();
	if (!child) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (nt_refuse_system_calls(NULL, attaches))
			_exit(2);
		for (size_t i = 0; i < n; i++)
			try(&calls[i]);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_string_equal(found->text, "");
	munmap(found, sizeof(*found));
}

static void in_a_child(const struct call *calls, size_t n)
{
	in_a_child_that(false, calls, n);
}

static const char file[] = "/dev/null";
static char *const nothing[] = {NULL};

TEST(what_takes_a_machine_over_is_refused)
{
	const long path = (long)file;
	const struct call calls[] = {
		REFUSED(execve, (long)"/nonexistent", (long)nothing, (long)nothing, EPERM),
		REFUSED(execveat, -1, path, (long)nothing, EPERM),
		REFUSED(ptrace, 9999, 0, 0, EPERM),
		REFUSED(process_vm_readv, 0, 0, 0, EPERM),
		REFUSED(process_vm_writev, 0, 0, 0, EPERM),
		REFUSED(pidfd_getfd, -1, 0, 0, EPERM),
		REFUSED(pidfd_send_signal, -1, 0, 0, EPERM),
		REFUSED(kill, getppid(), 0, 0, EPERM),
		REFUSED(kill, -1, 0, 0, EPERM),
		REFUSED(tgkill, getppid(), getppid(), 0, EPERM),
		REFUSED(setuid, -1, 0, 0, EPERM),
		REFUSED(setgroups, -1, 0, 0, EPERM),
		REFUSED(setns, -1, 0, 0, EPERM),
		REFUSED(unshare, -1, 0, 0, EPERM),
		REFUSED(clone, CLONE_NEWUSER | CLONE_THREAD, 0, 0, EPERM),
		REFUSED(clone3, 0, 0, 0, ENOSYS),
		REFUSED(chroot, 0, 0, 0, EPERM),
		REFUSED(mount, 0, 0, 0, EPERM),
		REFUSED(umount2, 0, 0, 0, EPERM),
		REFUSED(move_mount, -1, 0, -1, EPERM),
		REFUSED(fsopen, 0, 0, 0, EPERM),
		REFUSED(init_module, 0, 0, 0, EPERM),
		REFUSED(finit_module, -1, 0, 0, EPERM),
		REFUSED(delete_module, 0, 0, 0, EPERM),
		REFUSED(kexec_load, 0, 0, 0, EPERM),
		REFUSED(reboot, 0, 0, 0, EPERM),
		REFUSED(settimeofday, 0, 1, 0, EPERM),
		REFUSED(clock_settime, -1, 0, 0, EPERM),
		REFUSED(perf_event_open, 0, 0, 0, EPERM),
		REFUSED(userfaultfd, -1, 0, 0, EPERM),
		REFUSED(keyctl, -1, 0, 0, EPERM),
		REFUSED(open_by_handle_at, -1, 0, 0, EPERM),
		REFUSED(io_uring_setup, 0, 0, 0, EPERM),
		REFUSED(io_uring_enter, -1, 0, 0, EPERM),
		REFUSED(connect, -1, 0, 0, EPERM),
		REFUSED(bind, -1, 0, 0, EPERM),
		REFUSED(listen, -1, 0, 0, EPERM),
		REFUSED(socket, AF_INET, SOCK_STREAM, 0, EPERM),
		REFUSED(socket, AF_INET6, SOCK_STREAM, 0, EPERM),
		REFUSED(socket, AF_NETLINK, SOCK_RAW, 0, EPERM),
		REFUSED(socket, AF_PACKET, SOCK_RAW, 0, EPERM),
		REFUSED(ioctl, 0, TIOCSTI, 0, EPERM),
		REFUSED(ioctl, 0, TIOCLINUX, 0, EPERM),
		REFUSED(ioctl, 0, (long)(1ULL << 32 | TIOCSTI), 0, EPERM),
		REFUSED(fcntl, 0, F_SETSIG, SIGKILL, EPERM),
		REFUSED(fcntl, 0, F_SETOWN, getppid(), EPERM),
		REFUSED(fcntl, 0, F_SETOWN_EX, 0, EPERM),
		REFUSED(ioctl, 0, FIOSETOWN, (long)&somebody, EPERM),
		REFUSED(ioctl, 0, SIOCSPGRP, (long)&somebody, EPERM),
		REFUSED(prlimit64, getppid(), 0, 0, EPERM),
	};

	in_a_child(calls, sizeof(calls) / sizeof(calls[0]));
}

TEST(no_file_is_written_made_or_given_away)
{
	const long path = (long)file;
	const struct call calls[] = {
		REFUSED(openat, AT_FDCWD, path, O_WRONLY, EPERM),
		REFUSED(openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, EPERM),
		REFUSED(openat, AT_FDCWD, path, O_ACCMODE, EPERM),
		REFUSED(openat, AT_FDCWD, path, O_RDONLY | O_CREAT, EPERM),
		REFUSED(openat, AT_FDCWD, path, O_RDONLY | O_TRUNC, EPERM),
		REFUSED(openat2, AT_FDCWD, path, 0, ENOSYS),
		REFUSED(renameat2, -1, 0, -1, EPERM),
		REFUSED(linkat, -1, 0, -1, EPERM),
		REFUSED(symlinkat, 0, -1, 0, EPERM),
		REFUSED(mkdirat, -1, 0, 0, EPERM),
		REFUSED(mknodat, -1, 0, 0, EPERM),
		REFUSED(truncate, 0, 0, 0, EPERM),
		REFUSED(fchmod, -1, 0, 0, EPERM),
		REFUSED(fchmodat, -1, 0, 0, EPERM),
		REFUSED(fchown, -1, 0, 0, EPERM),
		REFUSED(fchownat, -1, 0, 0, EPERM),
		REFUSED(setxattr, 0, 0, 0, EPERM),
		REFUSED(fsetxattr, -1, 0, 0, EPERM),
		REFUSED(utimensat, -1, 0, 0, EPERM),
		REFUSED(ioctl, -1, FS_IOC_SETFLAGS, 0, EPERM),
		REFUSED(ioctl, -1, FS_IOC_FSSETXATTR, 0, EPERM),
#ifdef SYS_open
		REFUSED(open, path, O_WRONLY, 0, EPERM),
		REFUSED(open, path, O_CREAT, 0, EPERM),
		REFUSED(creat, path, 0, 0, EPERM),
		REFUSED(rename, 0, 0, 0, EPERM),
		REFUSED(utimes, 0, 0, 0, EPERM),
		REFUSED(open, path, O_RDONLY, 0, 0),
#endif
		REFUSED(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0),
		REFUSED(openat, AT_FDCWD, (long)"/proc", O_RDONLY | O_DIRECTORY, 0),
	};

	in_a_child(calls, sizeof(calls) / sizeof(calls[0]));
}

/* Without privileges the kernel says EPERM by itself: what tells the two apart is asked as root. */
TEST(bpf_goes_on_with_what_is_there_and_makes_nothing_new)
{
	const struct call calls[] = {
		BPF_COMMAND(BPF_MAP_CREATE, EPERM),
		BPF_COMMAND(BPF_PROG_LOAD, EPERM),
		BPF_COMMAND(BPF_OBJ_PIN, EPERM),
		BPF_COMMAND(BPF_OBJ_GET, EPERM),
		BPF_COMMAND(BPF_PROG_ATTACH, EPERM),
		BPF_COMMAND(BPF_PROG_DETACH, EPERM),
		BPF_COMMAND(BPF_PROG_TEST_RUN, EPERM),
		BPF_COMMAND(BPF_PROG_GET_FD_BY_ID, EPERM),
		BPF_COMMAND(BPF_MAP_GET_FD_BY_ID, EPERM),
		BPF_COMMAND(BPF_RAW_TRACEPOINT_OPEN, EPERM),
		BPF_COMMAND(BPF_BTF_LOAD, EPERM),
		BPF_COMMAND(BPF_LINK_CREATE, EPERM),
		BPF_COMMAND(BPF_LINK_UPDATE, EPERM),
		BPF_COMMAND(BPF_LINK_GET_FD_BY_ID, EPERM),
		BPF_COMMAND(BPF_PROG_BIND_MAP, EPERM),
		BPF_COMMAND(1000, EPERM),
		BPF_COMMAND(-1, EPERM),
	};
	const struct call goes_on[] = {
		BPF_COMMAND(BPF_MAP_LOOKUP_ELEM, 0),  BPF_COMMAND(BPF_MAP_UPDATE_ELEM, 0),
		BPF_COMMAND(BPF_MAP_LOOKUP_BATCH, 0), BPF_COMMAND(BPF_MAP_DELETE_ELEM, 0),
		BPF_COMMAND(BPF_MAP_GET_NEXT_KEY, 0), BPF_COMMAND(BPF_OBJ_GET_INFO_BY_FD, 0),
		BPF_COMMAND(BPF_ITER_CREATE, 0),      BPF_COMMAND(BPF_ENABLE_STATS, 0),
		BPF_COMMAND(BPF_LINK_DETACH, 0),
	};

	in_a_child(calls, sizeof(calls) / sizeof(calls[0]));
	if (geteuid())
		skip();
	in_a_child(goes_on, sizeof(goes_on) / sizeof(goes_on[0]));
}

TEST(a_daemon_in_standby_attaches_and_still_loads_nothing)
{
	const struct call refused[] = {
		BPF_COMMAND(BPF_MAP_CREATE, EPERM),      BPF_COMMAND(BPF_PROG_LOAD, EPERM),
		BPF_COMMAND(BPF_BTF_LOAD, EPERM),        BPF_COMMAND(BPF_PROG_ATTACH, EPERM),
		BPF_COMMAND(BPF_LINK_UPDATE, EPERM),     BPF_COMMAND(BPF_PROG_GET_FD_BY_ID, EPERM),
		BPF_COMMAND(BPF_OBJ_GET, EPERM),         BPF_COMMAND(1000, EPERM),
		REFUSED(perf_event_open, 0, 0, 0, EPERM)};
	const struct call goes_on[] = {BPF_COMMAND(BPF_RAW_TRACEPOINT_OPEN, 0),
				       BPF_COMMAND(BPF_LINK_CREATE, 0),
				       BPF_COMMAND(BPF_ITER_CREATE, 0)};

	in_a_child_that(true, refused, sizeof(refused) / sizeof(refused[0]));
	if (geteuid())
		skip();
	in_a_child_that(true, goes_on, sizeof(goes_on) / sizeof(goes_on[0]));
}

TEST(what_a_tracer_does_later_is_allowed)
{
	const struct call calls[] = {
		REFUSED(socket, AF_UNIX, SOCK_DGRAM, 0, 0),
		REFUSED(sendto, -1, 0, 0, 0),
		REFUSED(accept4, -1, 0, 0, 0),
		REFUSED(memfd_create, (long)"x", 0, 0, 0),
		REFUSED(mmap, 0, 0, 0, 0),
		REFUSED(timerfd_create, CLOCK_MONOTONIC, 0, 0, 0),
		REFUSED(pidfd_open, getpid(), 0, 0, 0),
		REFUSED(unlinkat, -1, 0, 0, 0),
		REFUSED(ioctl, 0, TIOCGWINSZ, 0, 0),
		REFUSED(fcntl, 0, F_SETFL, 0, 0),
		REFUSED(fcntl, 0, F_GETFD, 0, 0),
		REFUSED(prlimit64, 0, 0, 0, 0),
	};

	in_a_child(calls, sizeof(calls) / sizeof(calls[0]));
}

TEST(one_call_may_stay_allowed)
{
	pid_t child = fork();
	int status;

	if (!child) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (nt_refuse_system_calls((const char *const[]){"pidfd_getfd", NULL}, false))
			_exit(2);
		if (syscall(SYS_pidfd_getfd, -1, 0, 0) != -1 || errno != EBADF)
			_exit(3);
		_exit(syscall(SYS_ptrace, 9999, 0, 0) == -1 && errno == EPERM ? 0 : 4);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

TEST(a_signal_to_itself_is_delivered)
{
	pid_t child = fork();
	int status;

	if (!child) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (!nt_refuse_system_calls(NULL, false))
			raise(SIGTERM);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

UNIT_MAIN()
