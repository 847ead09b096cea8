// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/each_process.c userspace/capture/asked.c userspace/fix/reach.c userspace/fix/sockets.c userspace/fix/open_sockets.c userspace/base/error.c userspace/base/log.c
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "no_owners.h"
#include "unit.h"
#include "fix/sockets.h"
#include "fix/open_sockets.h"

/* Nobody has any socket. */
int nt_owners_scan(struct nt_owners *owners)
{
	return 0;
}

bool nt_targets_match(const struct nt_targets *targets, pid_t tgid)
{
	return true;
}

int nt_process_read(pid_t tgid, struct nt_process *process)
{
	return 0;
}

static struct nt_owners owners;
static struct nt_targets targets;

static struct nt_end end_of(uint64_t sk)
{
	struct nt_end end = {.sk = sk};

	return end;
}

static struct nt_fix_socket *add(struct nt_fix_sockets *sockets, uint64_t sk)
{
	struct nt_end end = end_of(sk);

	return nt_fix_add(sockets, &end, 0, &owners, &targets);
}

static struct nt_fix_socket *find(const struct nt_fix_sockets *sockets, uint64_t sk)
{
	struct nt_end end = end_of(sk);

	return nt_fix_find(sockets, &end);
}

TEST(what_found_no_room_counts_once_and_takes_the_place_of_a_closed_one)
{
	const uint64_t a = 100001, b = 100002;
	struct nt_fix_sockets sockets;

	assert_int_equal(nt_fix_open(&sockets, TCP_NODELAY), 0);
	for (uint64_t sk = 1; sk <= NT_FIX_MOST; sk++) {
		struct nt_fix_socket *s = add(&sockets, sk);

		assert_non_null(s);
		assert_int_equal(s->state, NT_FIX_CLOSED);
		s->state = NT_FIX_PLANNED;
	}
	for (int i = 0; i < 3; i++) {
		assert_null(add(&sockets, a));
		assert_null(add(&sockets, b));
	}
	assert_int_equal(sockets.no_room, 2);

	/* one that was set has a result to tell: it goes last */
	sockets.list[7].state = sockets.list[9].state = NT_FIX_CLOSED;
	sockets.list[7].set_ns = 5;
	assert_ptr_equal(add(&sockets, a), &sockets.list[9]);
	sockets.list[9].state = NT_FIX_PLANNED;
	assert_int_equal(sockets.no_room, 1);
	assert_ptr_equal(add(&sockets, b), &sockets.list[7]);
	assert_int_equal(sockets.no_room, 0);
	assert_ptr_equal(find(&sockets, a), &sockets.list[9]);
	assert_ptr_equal(find(&sockets, b), &sockets.list[7]);
	assert_null(find(&sockets, 8));
	assert_null(find(&sockets, 10));
	assert_ptr_equal(find(&sockets, 9), &sockets.list[8]);
	assert_int_equal(sockets.count, NT_FIX_MOST);
	nt_fix_close(&sockets);
}

TEST(one_that_is_not_reached_can_be_left_out)
{
	struct nt_fix_sockets sockets;
	struct nt_end end = end_of(1);

	assert_int_equal(nt_fix_open(&sockets, TCP_NODELAY), 0);
	nt_fix_add_reached(&sockets, &end, &owners, &targets);
	assert_int_equal(sockets.count, 0);
	assert_null(find(&sockets, 1));
	nt_fix_close(&sockets);
}

TEST(nothing_is_added_or_left_set_once_all_is_set_back)
{
	struct nt_fix_sockets sockets;
	struct nt_fix_socket *s;
	struct stat status;

	assert_int_equal(nt_fix_open(&sockets, TCP_NODELAY), 0);
	assert_int_equal(stat("/proc/self/ns/net", &status), 0);
	s = add(&sockets, 1);
	s->state = NT_FIX_SET;
	s->key.tuple.netns = status.st_ino;
	s->inode = 1; /* of no socket */
	s = add(&sockets, 2);
	s->state = NT_FIX_SET;
	s->key.tuple.netns = status.st_ino; /* whether it is closed is not known */
	nt_fix_restore(&sockets, &owners);
	assert_int_equal(sockets.list[0].state, NT_FIX_CLOSED);
	assert_int_equal(sockets.list[1].state, NT_FIX_STUCK);
	assert_null(add(&sockets, 3));
	sockets.list[0].state = NT_FIX_PLANNED;
	nt_fix_set(&sockets, &sockets.list[0], &owners);
	assert_int_equal(sockets.list[0].state, NT_FIX_PLANNED);
	nt_fix_close(&sockets);
}

TEST(sockets_are_open_until_their_last_descriptor_is_closed)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), fd6 = socket(AF_INET6, SOCK_STREAM, 0);
	struct nt_open_sockets open = {0};
	struct stat own, socket4, socket6;

	if (listen(fd, 1) || listen(fd6, 1))
		skip();
	assert_int_equal(stat("/proc/self/ns/net", &own), 0);
	assert_int_equal(fstat(fd, &socket4), 0);
	assert_int_equal(fstat(fd6, &socket6), 0);
	assert_int_equal(nt_open_sockets_read(&open, own.st_ino, &owners), 0);
	assert_true(nt_open_sockets_has(&open, socket4.st_ino));
	assert_true(nt_open_sockets_has(&open, socket6.st_ino));
	close(fd);
	close(fd6);
	assert_int_equal(nt_open_sockets_read(&open, own.st_ino, &owners), 0);
	assert_false(nt_open_sockets_has(&open, socket4.st_ino));
	assert_false(nt_open_sockets_has(&open, socket6.st_ino));
	nt_open_sockets_close(&open);
}

UNIT_MAIN()
