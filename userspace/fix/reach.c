// SPDX-License-Identifier: GPL-2.0
#include "fix/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/asked.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

int nt_fix_pidfd(pid_t tgid, pid_t tid)
{
	int pidfd = syscall(SYS_pidfd_open, tid, tid == tgid ? 0 : PIDFD_THREAD);

	if (pidfd < 0 && errno == EINVAL)
		pidfd = syscall(SYS_pidfd_open, tgid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

/*
 * Returns a descriptor of our own for another process's file, to be closed at once, or -errno.
 * Since 6.9 it goes by any thread, not only the first: a thread may have its own descriptor table,
 * or outlive the first.
 */
static int take(pid_t tgid, pid_t tid, int fd)
{
	int pidfd = nt_fix_pidfd(tgid, tid), taken;

	if (pidfd < 0)
		return pidfd;
	taken = syscall(SYS_pidfd_getfd, pidfd, fd, 0); /* close-on-exec by itself */
	if (taken < 0)
		taken = -errno;
	close(pidfd);
	return taken;
}

int nt_fix_get_option(int fd, int level, int option, void *value, socklen_t size)
{
	return getsockopt(fd, level, option, value, &size) ? -errno : 0;
}

/* Compares with an address in the form of struct nt_tuple. */
static bool address_is(const struct sockaddr_storage *storage, __u16 family, __u16 port,
		       const __u8 *address)
{
	const struct sockaddr_in6 *v6 = (const void *)storage;
	const struct sockaddr_in *v4 = (const void *)storage;

	if (storage->ss_family == AF_INET)
		return family == AF_INET && ntohs(v4->sin_port) == port &&
		       (!address || !memcmp(&v4->sin_addr, address, 4));
	if (storage->ss_family != AF_INET6 || ntohs(v6->sin6_port) != port)
		return false;
	if (!IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return family == AF_INET6 && (!address || !memcmp(&v6->sin6_addr, address, 16));
	return family == AF_INET && (!address || !memcmp(&v6->sin6_addr.s6_addr[12], address, 4));
}

/*
 * Checks that the descriptor is still this connection: between look-up and take the process may
 * have closed it, and used its number again. An MPTCP socket has the addresses of its first
 * subflow, and passes the options on to all.
 */
static bool is_connection(int fd, const struct nt_tuple *tuple)
{
	struct sockaddr_storage local, remote;
	socklen_t size = sizeof(local);
	int protocol;

	if (nt_fix_get_option(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, sizeof(protocol)) ||
	    (protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP) ||
	    getsockname(fd, (void *)&local, &size))
		return false;
	size = sizeof(remote);
	return !getpeername(fd, (void *)&remote, &size) &&
	       address_is(&local, tuple->family, tuple->local_port, NULL) &&
	       address_is(&remote, tuple->family, tuple->remote_port, tuple->remote_addr);
}

bool nt_fix_is_socket(int fd, const struct nt_fix_socket *s)
{
	uint64_t cookie;

	if (!s->cookie)
		return is_connection(fd, &s->key.tuple);
	return !nt_fix_get_option(fd, SOL_SOCKET, SO_COOKIE, &cookie, sizeof(cookie)) &&
	       cookie == s->cookie;
}

static int reach_at(const struct nt_fix_socket *s, pid_t tgid, pid_t tid, int fd)
{
	int taken = take(tgid, tid, fd);

	if (taken < 0 || nt_fix_is_socket(taken, s))
		return taken;
	close(taken);
	return -EBADF;
}

int nt_fix_reach_where_it_was(const struct nt_fix_socket *s)
{
	return s->fd < 0 ? -EBADF : reach_at(s, s->process.tgid, s->tid, s->fd);
}

bool nt_fix_means_absent(int err)
{
	return err == -EBADF || err == -ESRCH;
}

int nt_fix_reach(struct nt_fix_socket *s, struct nt_owners *owners,
		 const struct nt_targets *targets, uint64_t since_ns)
{
	struct nt_end end = {.sk = s->key.sk, .tuple = s->key.tuple};
	const struct nt_owner *list;
	int taken, err = -EBADF;
	size_t count;

	list = nt_owners_find(owners, &end, since_ns, &count);
	for (int asked_for = targets != NULL; asked_for >= 0; asked_for--) {
		for (size_t i = 0; i < count; i++) {
			if (asked_for && !nt_targets_match(targets, list[i].tgid))
				continue;
			taken = reach_at(s, list[i].tgid, list[i].tid, list[i].fd);
			if (taken < 0 && nt_fix_means_absent(err))
				err = taken;
			if (taken < 0)
				continue;
			if (s->process.tgid != (pid_t)list[i].tgid)
				nt_process_read(list[i].tgid, &s->process);
			s->tid = list[i].tid;
			s->fd = list[i].fd;
			s->away = false;
			return taken;
		}
	}
	return err;
}

/* Returns Yama's ptrace_scope from its file; 0 without the file. */
static int ptrace_scope(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%d", &scope) != 1)
		scope = 0;
	fclose(file);
	return scope;
}

/* Checks whether we may take descriptors of this process. Returns 0, also if the process is gone,
 * or -EPERM with reason and remedy. */
static int may_take(pid_t tgid, char *why, size_t size)
{
	/* pidfd_getfd() checks the permission before it looks for the descriptor */
	int taken = take(tgid, tgid, INT_MAX);

	if (taken != -EPERM)
		return 0;
	/* 3: nobody may attach, and no privilege helps; yama_ptrace_access_check() */
	if (ptrace_scope() == 3)
		snprintf(why, size,
			 "kernel.yama.ptrace_scope is 3, which forbids it to everybody until the "
			 "next boot");
	else
		snprintf(why, size,
			 "CAP_SYS_PTRACE missing, or a security module forbids it; run as root, "
			 "with sudo, or give the capability");
	return -EPERM;
}

/* The check of one process: a process asked for whose sockets we may not use. */
struct forbidden {
	const struct nt_targets *targets;
	char why[200];
};

static bool is_forbidden(void *context, pid_t tgid)
{
	struct forbidden *f = context;

	return nt_targets_match(f->targets, tgid) && may_take(tgid, f->why, sizeof(f->why));
}

bool nt_fix_permitted(const struct nt_owners *owners, const struct nt_targets *targets,
		      struct nt_error *error)
{
	const struct nt_owner_list *list = &owners->list;
	const struct nt_settings *settings = targets->settings;
	struct forbidden forbidden = {.targets = targets};
	struct nt_asked asked = {};
	size_t i;

	if (!owners->iterator)
		return nt_error_set(error, NT_EXIT_KERNEL,
				    "fix: this kernel does not show who has a socket; it takes BTF "
				    "of its own, at /sys/kernel/btf/vmlinux");
	for (i = 0; i < settings->n_pids; i++)
		if (may_take(settings->pids[i], forbidden.why, sizeof(forbidden.why)))
			return nt_error_set(error, NT_EXIT_PERMISSION,
					    "--pid %d: its sockets may not be used: %s",
					    settings->pids[i], forbidden.why);
	if (settings->n_pids)
		return true;
	for (i = 0; i < list->count; i++)
		if (nt_ask_once(&asked, list->owners[i].tgid, is_forbidden, &forbidden))
			break;
	nt_asked_clear(&asked);
	return i == list->count || nt_error_set(error, NT_EXIT_PERMISSION,
						"process %u: its sockets may not be used: %s",
						list->owners[i].tgid, forbidden.why);
}
