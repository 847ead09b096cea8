// SPDX-License-Identifier: GPL-2.0
#include "fix_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

/* TCP_QUICKACK is set again on what has not stalled in one of so many rounds only. */
#define IDLE_ROUNDS 64

/* A descriptor of our own of another process's file, to be closed at once; or -errno. */
static int take(pid_t tgid, int fd)
{
	int pidfd = syscall(SYS_pidfd_open, tgid, 0), taken;

	if (pidfd < 0)
		return -errno;
	taken = syscall(SYS_pidfd_getfd, pidfd, fd, 0); /* close-on-exec by itself */
	if (taken < 0)
		taken = -errno;
	close(pidfd);
	return taken;
}

static int get_option(int fd, int level, int option, void *value, socklen_t size)
{
	return getsockopt(fd, level, option, value, &size) ? -errno : 0;
}

static int set_option(int fd, int option, int value)
{
	return setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)) ? -errno : 0;
}

/* An address as struct nt_tuple has it. */
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

/* What was looked up may have been closed, and the number be another's, before it was taken. */
static bool is_connection(int fd, const struct nt_tuple *tuple)
{
	struct sockaddr_storage local, remote;
	socklen_t size = sizeof(local);
	int protocol;

	if (get_option(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, sizeof(protocol)) ||
	    protocol != IPPROTO_TCP || getsockname(fd, (void *)&local, &size))
		return false;
	size = sizeof(remote);
	return !getpeername(fd, (void *)&remote, &size) &&
	       address_is(&local, tuple->family, tuple->local_port, NULL) &&
	       address_is(&remote, tuple->family, tuple->remote_port, tuple->remote_addr);
}

/* Likewise that of an entry, once its cookie is known. */
static bool is_socket(int fd, const struct nt_fix_socket *s)
{
	uint64_t cookie;

	if (!s->cookie)
		return is_connection(fd, &s->key.tuple);
	return !get_option(fd, SOL_SOCKET, SO_COOKIE, &cookie, sizeof(cookie)) &&
	       cookie == s->cookie;
}

static int reach_at(const struct nt_fix_socket *s, pid_t tgid, int fd)
{
	int taken = take(tgid, fd);

	if (taken < 0 || is_socket(taken, s))
		return taken;
	close(taken);
	return -EBADF;
}

/*
 * A descriptor of our own of this socket, wherever it is: in a process asked for where there is one
 * (targets NULL: no matter). What is kept of owners does if it is not older than since_ns. -EBADF
 * or -ESRCH: nobody has it any more; or what else went wrong.
 */
static int reach(struct nt_fix_socket *s, struct nt_owners *owners,
		 const struct nt_targets *targets, uint64_t since_ns)
{
	struct nt_end end = {.sk = s->key.sk, .tuple = s->key.tuple};
	const struct nt_owner *list;
	int taken = -EBADF;
	size_t count;

	list = nt_owners_find(owners, &end, since_ns, &count);
	for (int asked_for = targets != NULL; asked_for >= 0; asked_for--) {
		for (size_t i = 0; i < count; i++) {
			if (asked_for && !nt_targets_match(targets, list[i].tgid))
				continue;
			taken = reach_at(s, list[i].tgid, list[i].fd);
			if (taken < 0)
				continue;
			if (s->process.tgid != (pid_t)list[i].tgid)
				nt_process_read(list[i].tgid, &s->process);
			s->fd = list[i].fd;
			s->away = false;
			return taken;
		}
	}
	return taken;
}

static void not_reached(struct nt_fix_socket *s, enum nt_fix_state state, int err)
{
	s->err = err;
	s->state = err == -EBADF || err == -ESRCH ? NT_FIX_CLOSED : state;
}

int nt_fix_open(struct nt_fix_sockets *sockets, int option)
{
	memset(sockets, 0, sizeof(*sockets));
	sockets->option = option;
	sockets->list = calloc(NT_FIX_MOST, sizeof(*sockets->list));
	return sockets->list ? 0 : -ENOMEM;
}

void nt_fix_close(struct nt_fix_sockets *sockets)
{
	HASH_CLEAR(hh, sockets->by_key);
	free(sockets->list);
	memset(sockets, 0, sizeof(*sockets));
}

const char *nt_fix_option_name(const struct nt_fix_sockets *sockets)
{
	return sockets->option == TCP_QUICKACK ? "TCP_QUICKACK" : "TCP_NODELAY";
}

/* Yama's, from its file; 0 where it is not there. */
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

/* May descriptors of this process be taken? 0, also if it is gone, or -EPERM with reason and
 * remedy.
 */
static int may_take(pid_t tgid, char *why, size_t size)
{
	/* whether we may is asked before whether there is such a descriptor: pidfd_getfd() */
	int taken = take(tgid, INT_MAX);

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

enum nt_exit nt_fix_permitted(const struct nt_owners *owners, const struct nt_targets *targets,
			      char *err, size_t err_size)
{
	const struct nt_options *opts = targets->opts;
	char why[200];

	if (!owners->iterator) {
		snprintf(
			err, err_size,
			"fix: this kernel does not tell who has a socket; it takes BTF of its own, at "
			"/sys/kernel/btf/vmlinux");
		return NT_EXIT_KERNEL;
	}
	for (unsigned int i = 0; i < opts->n_pids; i++) {
		if (!may_take(opts->pids[i], why, sizeof(why)))
			continue;
		snprintf(err, err_size, "--pid %d: its sockets may not be used: %s", opts->pids[i],
			 why);
		return NT_EXIT_PERMISSION;
	}
	for (size_t i = 0; !opts->n_pids && i < owners->count; i++) {
		if (!nt_targets_match(targets, owners->list[i].tgid) ||
		    !may_take(owners->list[i].tgid, why, sizeof(why)))
			continue;
		snprintf(err, err_size, "process %u: its sockets may not be used: %s",
			 owners->list[i].tgid, why);
		return NT_EXIT_PERMISSION;
	}
	return NT_EXIT_OK;
}

static struct nt_fix_key key_of(const struct nt_end *end)
{
	struct nt_fix_key key = {.sk = end->sk, .tuple = end->tuple};

	return key;
}

struct nt_fix_socket *nt_fix_find(const struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_fix_key key = key_of(end);
	struct nt_fix_socket *s;

	HASH_FIND(hh, sockets->by_key, &key, sizeof(key), s);
	return s;
}

struct nt_fix_socket *nt_fix_add(struct nt_fix_sockets *sockets, const struct nt_end *end,
				 uint64_t since_ns, struct nt_owners *owners,
				 const struct nt_targets *targets)
{
	struct nt_fix_socket *s;
	int fd, err;

	if (sockets->count == NT_FIX_MOST) {
		sockets->no_room++;
		return NULL;
	}
	s = &sockets->list[sockets->count];
	memset(s, 0, sizeof(*s));
	s->key = key_of(end);
	s->fd = -1;
	HASH_ADD(hh, sockets->by_key, key, sizeof(s->key), s);
	if (!s->hh.tbl) {
		sockets->no_room++;
		return NULL;
	}
	sockets->count++;
	fd = reach(s, owners, targets, since_ns);
	if (fd < 0) {
		not_reached(s, NT_FIX_FAILED, fd);
		return s;
	}
	err = get_option(fd, SOL_SOCKET, SO_COOKIE, &s->cookie, sizeof(s->cookie));
	if (!err)
		err = get_option(fd, IPPROTO_TCP, sockets->option, &s->former, sizeof(s->former));
	close(fd);
	if (err)
		not_reached(s, NT_FIX_FAILED, err);
	else if (sockets->option == TCP_NODELAY && s->former)
		s->state = NT_FIX_HAD_IT;
	return s;
}

void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners)
{
	int fd = reach_at(s, s->process.tgid, s->fd), err;

	if (fd < 0)
		fd = reach(s, owners, NULL, 0);
	if (fd < 0) {
		not_reached(s, NT_FIX_FAILED, fd);
		return;
	}
	/* the program may have set it since it was looked at */
	err = get_option(fd, IPPROTO_TCP, sockets->option, &s->former, sizeof(s->former));
	if (!err && sockets->option == TCP_NODELAY && s->former) {
		s->state = NT_FIX_HAD_IT;
	} else if (!err) {
		s->state = NT_FIX_SET; /* before it is true: a signal handler may have to undo it */
		err = set_option(fd, sockets->option, 1);
		s->set_ns = err ? 0 : nt_now_ns();
	}
	close(fd);
	if (err)
		not_reached(s, NT_FIX_FAILED, err);
}

/* Is this one's turn in this round? Those that stalled are in each, the others shared out. */
static bool is_due(const struct nt_fix_sockets *sockets, size_t i)
{
	const struct nt_fix_socket *s = &sockets->list[i];

	if (s->state != NT_FIX_SET || s->away)
		return false;
	return s->stalled || i % IDLE_ROUNDS == sockets->rounds % IDLE_ROUNDS;
}

/* By its process's pidfd. */
static void set_again(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s, int pidfd)
{
	int fd = syscall(SYS_pidfd_getfd, pidfd, s->fd, 0);

	s->away = fd < 0 || !is_socket(fd, s);
	if (!s->away)
		set_option(fd, sockets->option, 1);
	if (fd >= 0)
		close(fd);
}

void nt_fix_set_again(struct nt_fix_sockets *sockets)
{
	pid_t of = 0;
	int pidfd = -1;

	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];

		if (!is_due(sockets, i))
			continue;
		if (of != s->process.tgid) {
			if (pidfd >= 0)
				close(pidfd);
			of = s->process.tgid;
			pidfd = syscall(SYS_pidfd_open, of, 0);
		}
		set_again(sockets, s, pidfd);
	}
	if (pidfd >= 0)
		close(pidfd);
	sockets->rounds++;
}

/* By a descriptor of our own. What is not as we set it is not ours to change. */
static void set_back(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s, int fd)
{
	int value, err = get_option(fd, IPPROTO_TCP, sockets->option, &value, sizeof(value));
	bool left = !err && !value;

	if (!err && value && !s->former)
		err = set_option(fd, sockets->option, 0);
	s->err = err;
	if (err)
		s->state = NT_FIX_STUCK;
	else if (left && sockets->option == TCP_NODELAY)
		s->state = NT_FIX_CHANGED;
	else
		s->state = NT_FIX_RESTORED; /* TCP_QUICKACK is left by the kernel, too */
}

void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets)
{
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];
		int fd;

		if (s->state != NT_FIX_SET)
			continue;
		fd = reach_at(s, s->process.tgid, s->fd);
		if (fd < 0)
			continue;
		set_back(sockets, s, fd);
		close(fd);
	}
}

void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	int err = 1; /* of a scan; 1: there was none */

	nt_fix_restore_in_signal(sockets);
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];
		int fd;

		if (s->state != NT_FIX_SET)
			continue;
		/* duplicated, passed on, or closed: one look is for all of them */
		if (err == 1)
			err = nt_owners_scan(owners);
		fd = err ? err : reach(s, owners, NULL, 0);
		if (fd < 0) {
			not_reached(s, NT_FIX_STUCK, fd);
			continue;
		}
		set_back(sockets, s, fd);
		close(fd);
	}
}
