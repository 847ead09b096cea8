// SPDX-License-Identifier: GPL-2.0
#include "fix/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "fix/reach.h"
#include "fix/open_sockets.h"

/* While setting back: how long it looks for missing sockets, and its pauses. */
#define FIND_NS  (100 * 1000000ULL)
#define PAUSE_NS 2000000L

/* The readings of the open sockets that miss one before it counts as closed. */
#define MISSED_IS_CLOSED 2

/* A socket that has not stalled gets TCP_QUICKACK again in one of IDLE_ROUNDS rounds only. */
#define IDLE_ROUNDS 64

static int set_option(int fd, int option, int value)
{
	return setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)) ? -errno : 0;
}

static void not_reached(struct nt_fix_socket *s, enum nt_fix_state state, int err)
{
	s->err = err;
	s->state = nt_fix_means_absent(err) ? NT_FIX_CLOSED : state;
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
	if (s->state == NT_FIX_STUCK && nt_fix_means_absent(s->err))
		return "it is open, but at no descriptor that could be taken, as while it is "
		       "passed on";
	return strerror(-s->err);
}

struct nt_fix_socket *nt_fix_find(const struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_socket_key key = nt_socket_key_of(end);
	struct nt_fix_socket *s;

	HASH_FIND(hh, sockets->by_key, &key, sizeof(key), s);
	return s;
}

static struct nt_fix_more *find_more(const struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_socket_key key = nt_socket_key_of(end);
	struct nt_fix_more *more;

	HASH_FIND(hh, sockets->more, &key, sizeof(key), more);
	return more;
}

/* Counts a socket without room once, although it comes again at each stall or each look. */
static void count_more(struct nt_fix_sockets *sockets, const struct nt_end *end)
{
	struct nt_fix_more *more;

	if (sockets->no_room == NT_FIX_MOST_MORE || find_more(sockets, end))
		return;
	more = calloc(1, sizeof(*more));
	if (!more)
		return;
	more->key = nt_socket_key_of(end);
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

/* Returns the next slot, or that of a closed entry, preferably one that was never set. NULL:
 * none. */
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

/* Looks for a descriptor and reads the option; the state shows the result. */
static void look_at(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s,
		    struct nt_owners *owners, const struct nt_targets *targets, uint64_t since_ns)
{
	int fd = nt_fix_reach(s, owners, targets, since_ns), err;
	struct stat status;

	if (fd < 0) {
		not_reached(s, NT_FIX_FAILED, fd);
		return;
	}
	err = nt_fix_get_option(fd, SOL_SOCKET, SO_COOKIE, &s->cookie, sizeof(s->cookie));
	if (!err && !fstat(fd, &status))
		s->inode = status.st_ino;
	if (!err)
		err = nt_fix_get_option(fd, IPPROTO_TCP, sockets->option, &s->former,
					sizeof(s->former));
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
		s->key = nt_socket_key_of(end);
		s->fd = -1;
		HASH_ADD(hh, sockets->by_key, key, sizeof(s->key), s);
	}
	if (!s || !s->hh.tbl) {
		if (s)
			s->state = NT_FIX_CLOSED; /* a reused slot stays free */
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

/* Says whether an earlier look, before setting it, did not reach the socket. */
static bool was_not_reached(const struct nt_fix_socket *s)
{
	return (s->state == NT_FIX_CLOSED || s->state == NT_FIX_FAILED) && !s->set_ns;
}

/* Says whether a socket is also missing from its last place. The caller asks if the socket is not
 * among the open ones, or if no process is in its namespace to read them from. */
static bool seems_closed(struct nt_fix_socket *s)
{
	int fd = nt_fix_reach_where_it_was(s);

	if (nt_fix_means_absent(fd))
		return true;
	if (fd >= 0)
		close(fd);
	else
		s->err = fd;
	return false;
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
			s->err = err; /* it may be open or closed */
		else if ((!err && (!s->inode || nt_open_sockets_has(open, s->inode))) ||
			 !seems_closed(s))
			s->missed = 0;
		else if (++s->missed == MISSED_IS_CLOSED)
			s->state = NT_FIX_CLOSED;
	}
}

/* Marks those that are set and have been closed. */
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
		fd = nt_fix_reach(s, owners, NULL, 0);
		if (fd >= 0)
			close(fd);
	}
}

void nt_fix_set(struct nt_fix_sockets *sockets, struct nt_fix_socket *s, struct nt_owners *owners)
{
	int fd, err;

	if (sockets->over)
		return;
	fd = nt_fix_reach_where_it_was(s);
	if (fd < 0)
		fd = nt_fix_reach(s, owners, NULL, 0);
	if (fd < 0) {
		not_reached(s, NT_FIX_FAILED, fd);
		return;
	}
	/* the program may have set it after look_at() */
	err = nt_fix_get_option(fd, IPPROTO_TCP, sockets->option, &s->former, sizeof(s->former));
	if (!err && sockets->option == TCP_NODELAY && s->former) {
		s->state = NT_FIX_HAD_IT;
	} else if (!err) {
		s->state = NT_FIX_SET; /* set first: a signal handler may have to undo it */
		err = set_option(fd, sockets->option, 1);
		s->set_ns = err ? 0 : nt_now_ns();
	}
	close(fd);
	if (err)
		not_reached(s, NT_FIX_FAILED, err);
}

/* Says whether to set it again in this round: each round has all that stalled and a part of the
 * rest. */
static bool is_due(const struct nt_fix_sockets *sockets, size_t i)
{
	const struct nt_fix_socket *s = &sockets->list[i];

	if (s->state != NT_FIX_SET || s->away)
		return false;
	return s->stalled || i % IDLE_ROUNDS == sockets->rounds % IDLE_ROUNDS;
}

/* Sets the option again, by the pidfd of the thread that has the socket. */
static void set_again(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s, int pidfd)
{
	int fd = syscall(SYS_pidfd_getfd, pidfd, s->fd, 0);

	s->away = fd < 0 || !nt_fix_is_socket(fd, s);
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
			pidfd = nt_fix_pidfd(s->process.tgid, s->tid);
		}
		set_again(sockets, s, pidfd);
	}
	if (pidfd >= 0)
		close(pidfd);
	sockets->rounds++;
}

/* Sets the option back, by a descriptor of our own. If the program has changed it, it stays so. */
static void set_back(const struct nt_fix_sockets *sockets, struct nt_fix_socket *s, int fd)
{
	int value, err = nt_fix_get_option(fd, IPPROTO_TCP, sockets->option, &value, sizeof(value));
	bool left = !err && !value;

	if (!err && value && !s->former)
		err = set_option(fd, sockets->option, 0);
	s->err = err;
	if (err)
		s->state = NT_FIX_STUCK;
	else if (left && sockets->option == TCP_NODELAY)
		s->state = NT_FIX_CHANGED;
	else
		s->state = NT_FIX_RESTORED; /* the kernel, too, leaves TCP_QUICKACK */
}

size_t nt_fix_count(const struct nt_fix_sockets *sockets, enum nt_fix_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < sockets->count; i++)
		n += sockets->list[i].state == state;
	return n;
}

void nt_fix_restore_in_signal(struct nt_fix_sockets *sockets)
{
	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];
		int fd;

		if (s->state != NT_FIX_SET)
			continue;
		fd = nt_fix_reach_where_it_was(s);
		if (fd < 0)
			continue;
		set_back(sockets, s, fd);
		close(fd);
	}
}

/* Looks at all descriptors for sockets that are still set. Returns how many it did not find. */
static size_t restore_found(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	int err = nt_owners_scan(owners), fd;
	size_t absent = 0;

	for (size_t i = 0; i < sockets->count; i++) {
		struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != NT_FIX_SET)
			continue;
		fd = err ? err : nt_fix_reach(s, owners, NULL, 0);
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

/* Handles sockets that were duplicated, passed on or closed, with one scan for all. It scans at
 * least as often as it takes to find one closed, even on a busy host. */
static void restore_moved(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t give_up = nt_now_ns() + FIND_NS;

	for (int looks = 1; restore_found(sockets, owners); looks++) {
		note_closed(sockets, owners);
		if (!nt_fix_count(sockets, NT_FIX_SET) ||
		    (looks >= MISSED_IS_CLOSED && nt_now_ns() >= give_up))
			break;
		nanosleep(&pause, NULL);
	}
}

void nt_fix_restore(struct nt_fix_sockets *sockets, struct nt_owners *owners)
{
	sockets->over = true;
	nt_fix_restore_in_signal(sockets);
	if (nt_fix_count(sockets, NT_FIX_SET))
		restore_moved(sockets, owners);
	for (size_t i = 0; i < sockets->count; i++)
		if (sockets->list[i].state == NT_FIX_SET)
			sockets->list[i].state = NT_FIX_STUCK;
}
