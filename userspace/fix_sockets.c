// SPDX-License-Identifier: GPL-2.0
#include "fix_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "open_sockets.h"

/* Being set back: for so long, and after such pauses, what is not found is looked for again. */
#define FIND_NS  (100 * 1000000ULL)
#define PAUSE_NS 2000000L

/* In so many readings of those that are open it was missing. */
#define MISSED_IS_CLOSED 2

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

/* TCP_QUICKACK is set again on what has not stalled in one of so many rounds only. */
#define IDLE_ROUNDS 64

/* A thread's; before 6.9, where there is none, its process's. Or -errno. */
static int open_pidfd(pid_t tgid, pid_t tid)
{
	int pidfd = syscall(SYS_pidfd_open, tid, tid == tgid ? 0 : PIDFD_THREAD);

	if (pidfd < 0 && errno == EINVAL)
		pidfd = syscall(SYS_pidfd_open, tgid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

/*
 * A descriptor of our own of another process's file, to be closed at once; or -errno. By its first
 * thread, or by another one, which may have a table of its own, or outlive the first: since 6.9.
 */
static int take(pid_t tgid, pid_t tid, int fd)
{
	int pidfd = open_pidfd(tgid, tid), taken;

	if (pidfd < 0)
		return pidfd;
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

static int reach_at(const struct nt_fix_socket *s, pid_t tgid, pid_t tid, int fd)
{
	int taken = take(tgid, tid, fd);

	if (taken < 0 || is_socket(taken, s))
		return taken;
	close(taken);
	return -EBADF;
}

static int reach_where_it_was(const struct nt_fix_socket *s)
{
	return s->fd < 0 ? -EBADF : reach_at(s, s->process.tgid, s->tid, s->fd);
}

/* It is not there; any other failure says nothing of that. */
static bool means_absent(int err)
{
	return err == -EBADF || err == -ESRCH;
}

/*
 * A descriptor of our own of this socket, wherever it is: in a process asked for where there is one
 * (targets NULL: no matter). What is kept of owners does if it is not older than since_ns. -EBADF
 * or -ESRCH: it was found nowhere; or what else went wrong at one of the places.
 */
static int reach(struct nt_fix_socket *s, struct nt_owners *owners,
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
			if (taken < 0 && means_absent(err))
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

static void not_reached(struct nt_fix_socket *s, enum nt_fix_state state, int err)
{
	s->err = err;
	s->state = means_absent(err) ? NT_FIX_CLOSED : state;
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
	struct nt_fix_more *more, *next;

	HASH_ITER(hh, sockets->more, more, next)
	{
		HASH_DEL(sockets->more, more);
		free(more);
	}
	HASH_CLEAR(hh, sockets->by_key);
	free(sockets->list);
	memset(sockets, 0, sizeof(*sockets));
}

const char *nt_fix_option_name(const struct nt_fix_sockets *sockets)
{
	return sockets->option == TCP_QUICKACK ? "TCP_QUICKACK" : "TCP_NODELAY";
}

const char *nt_fix_why(const struct nt_fix_socket *s)
{
	if (s->state == NT_FIX_STUCK && means_absent(s->err))
		return "it is open, but at no descriptor that could be taken, as while it is "
		       "passed on";
	return strerror(-s->err);
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

static struct nt_fix_more *find_more(const struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_fix_key key = key_of(end);
	struct nt_fix_more *more;

	HASH_FIND(hh, sockets->more, &key, sizeof(key), more);
	return more;
}

/* One is met again at each of its stalls, or at each look. */
static void count_more(struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_fix_more *more;

	if (sockets->no_room == NT_FIX_MOST_MORE || find_more(sockets, end))
		return;
	more = calloc(1, sizeof(*more));
	if (!more)
		return;
	more->key = key_of(end);
	HASH_ADD(hh, sockets->more, key, sizeof(more->key), more);
	if (more->hh.tbl)
		sockets->no_room++;
	else
		free(more);
}

static void forget_more(struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_fix_more *more = find_more(sockets, end);

	if (!more)
		return;
	HASH_DEL(sockets->more, more);
	free(more);
	sockets->no_room--;
}

/* The next, or that of a closed one, of those that were never set if there is such. NULL: none. */
static struct nt_fix_socket *free_slot(struct nt_fix_sockets *sockets)
{
	struct nt_fix_socket *found = NULL;

	if (sockets->count < NT_FIX_MOST)
		return &sockets->list[sockets->count];
	for (size_t i = 0; i < sockets->count && (!found || found->set_ns); i++)
		if (sockets->list[i].state == NT_FIX_CLOSED && (!found || !sockets->list[i].set_ns))
			found = &sockets->list[i];
	if (found && found->hh.tbl)
		HASH_DEL(sockets->by_key, found);
	return found;
}

/* Looks for a descriptor and reads the option: the state tells what came of it. */
static void look_at(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s,
		    struct nt_owners *owners, const struct nt_targets *targets, uint64_t since_ns)
{
	int fd = reach(s, owners, targets, since_ns), err;
	struct stat status;

	if (fd < 0) {
		not_reached(s, NT_FIX_FAILED, fd);
		return;
	}
	err = get_option(fd, SOL_SOCKET, SO_COOKIE, &s->cookie, sizeof(s->cookie));
	if (!err && !fstat(fd, &status))
		s->inode = status.st_ino;
	if (!err)
		err = get_option(fd, IPPROTO_TCP, sockets->option, &s->former, sizeof(s->former));
	close(fd);
	s->err = 0;
	s->state = NT_FIX_PLANNED;
	if (err)
		not_reached(s, NT_FIX_FAILED, err);
	else if (sockets->option == TCP_NODELAY && s->former)
		s->state = NT_FIX_HAD_IT;
}

struct nt_fix_socket *nt_fix_add(struct nt_fix_sockets *sockets, const struct nt_end *end,
				 uint64_t since_ns, struct nt_owners *owners,
				 const struct nt_targets *targets)
{
	struct nt_fix_socket *s;

	if (sockets->over)
		return NULL;
	s = free_slot(sockets);
	if (s) {
		memset(s, 0, sizeof(*s));
		s->key = key_of(end);
		s->fd = -1;
		HASH_ADD(hh, sockets->by_key, key, sizeof(s->key), s);
	}
	if (!s || !s->hh.tbl) {
		if (s)
			s->state = NT_FIX_CLOSED; /* if it was one, it is free still */
		count_more(sockets, end);
		return NULL;
	}
	if (s == &sockets->list[sockets->count])
		sockets->count++;
	forget_more(sockets, end);
	look_at(sockets, s, owners, targets, since_ns);
	return s;
}

void nt_fix_add_reached(struct nt_fix_sockets *sockets, const struct nt_end *end,
			struct nt_owners *owners, const struct nt_targets *targets)
{
	size_t before = sockets->count;
	struct nt_fix_socket *s = nt_fix_add(sockets, end, 0, owners, targets);

	if (!s || s->state != NT_FIX_CLOSED || sockets->count == before)
		return;
	HASH_DEL(sockets->by_key, s);
	sockets->count--;
}

/* Was it not there when it was looked for, to be set? */
static bool was_not_reached(const struct nt_fix_socket *s)
{
	return (s->state == NT_FIX_CLOSED || s->state == NT_FIX_FAILED) && !s->set_ns;
}

static void note_closed_of(struct nt_fix_sockets *sockets, uint32_t netns,
			   const struct nt_open_sockets *open, int err)
{
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != NT_FIX_SET || s->key.tuple.netns != netns)
			continue;
		s->looked = true;
		if (err && err != -ESRCH)
			s->err = err; /* it is not known whether it is closed */
		else if (!err && (!s->inode || nt_open_sockets_has(open, s->inode)))
			s->missed = 0;
		else if (++s->missed == MISSED_IS_CLOSED)
			s->state = NT_FIX_CLOSED;
	}
}

/* Which of those that are set are closed. */
static void note_closed(struct nt_fix_sockets *sockets, const struct nt_owners *owners)
{
	struct nt_open_sockets open = {0};
	int err;

	for (size_t i = 0; i < sockets->count; i++)
		sockets->list[i].looked = false;
	for (size_t i = 0; i < sockets->count; i++) {
		const struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != NT_FIX_SET || s->looked)
			continue;
		err = nt_open_sockets_read(&open, s->key.tuple.netns, owners);
		note_closed_of(sockets, s->key.tuple.netns, &open, err);
	}
	nt_open_sockets_close(&open);
}

void nt_fix_look_again(struct nt_fix_sockets *sockets, struct nt_owners *owners,
		       const struct nt_targets *targets)
{
	bool scanned = false;

	if (sockets->count == NT_FIX_MOST)
		note_closed(sockets, owners);
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];
		bool moved = s->state == NT_FIX_SET && s->away;
		int fd;

		if (!moved && !was_not_reached(s))
			continue;
		if (!scanned && nt_owners_scan(owners))
			return;
		scanned = true;
		if (!moved) {
			look_at(sockets, s, owners, targets, 0);
			continue;
		}
		fd = reach(s, owners, NULL, 0);
		if (fd >= 0)
			close(fd);
	}
}

void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners)
{
	int fd, err;

	if (sockets->over)
		return;
	fd = reach_where_it_was(s);
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

/* By the pidfd of who has it. */
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
		if (of != s->tid) {
			if (pidfd >= 0)
				close(pidfd);
			of = s->tid;
			pidfd = open_pidfd(s->process.tgid, s->tid);
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

static bool any_set(const struct nt_fix_sockets *sockets)
{
	for (size_t i = 0; i < sockets->count; i++)
		if (sockets->list[i].state == NT_FIX_SET)
			return true;
	return false;
}

void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets)
{
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];
		int fd;

		if (s->state != NT_FIX_SET)
			continue;
		fd = reach_where_it_was(s);
		if (fd < 0)
			continue;
		set_back(sockets, s, fd);
		close(fd);
	}
}

/* Looks for those that are set still at all descriptors. How many were not found. */
static size_t restore_found(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	int err = nt_owners_scan(owners), fd;
	size_t absent = 0;

	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != NT_FIX_SET)
			continue;
		fd = err ? err : reach(s, owners, NULL, 0);
		if (fd >= 0) {
			set_back(sockets, s, fd);
			close(fd);
			continue;
		}
		s->err = fd;
		absent++;
	}
	return absent;
}

/* Duplicated, passed on, or closed: one look is for all of them. */
static void restore_moved(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t give_up = nt_now_ns() + FIND_NS;

	while (restore_found(sockets, owners)) {
		note_closed(sockets, owners);
		if (!any_set(sockets) || nt_now_ns() >= give_up)
			break;
		nanosleep(&pause, NULL);
	}
}

void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	sockets->over = true;
	nt_fix_restore_in_signal(sockets);
	if (any_set(sockets))
		restore_moved(sockets, owners);
	for (size_t i = 0; i < sockets->count; i++)
		if (sockets->list[i].state == NT_FIX_SET)
			sockets->list[i].state = NT_FIX_STUCK;
}
