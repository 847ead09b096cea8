// SPDX-License-Identifier: GPL-2.0
// links: userspace/daemon/server.c userspace/protocol/request.c userspace/base/loop.c userspace/base/streams.c userspace/base/error.c
// links: userspace/base/log.c userspace/base/text.c -levent -ljson-c
/*
 * What a reader of the socket may cost, in numbers: the bytes that wait for it and its silence. The
 * server runs in a thread of its own, with a clock that the test moves, and believes that its
 * clients are of the users that the test says.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "unit.h"
#include "base/loop.h"
#include "daemon/server.h"

/* What SECURITY.md says. */
#define READER_BYTES  (256 << 10)
#define USER_BYTES    (4 << 20)
#define ALL_BYTES     (16 << 20)
#define REQUEST_BYTES 4096
#define SILENCE_S     120

#define ALICE         1001
#define LARGE         (1 << 20)
#define SMALL         1000
#define PATIENCE_S    20

/* ---- the world that the server sees ---- */

static atomic_long ahead_s;
static atomic_int uid;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long err = syscall(SYS_clock_gettime, clock, now);

	now->tv_sec += ahead_s;
	return err;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	long err = syscall(SYS_getsockopt, fd, level, name, value, size);

	if (!err && level == SOL_SOCKET && name == SO_PEERCRED)
		((struct ucred *)value)->uid = uid;
	return err;
}

static struct daemon {
	char path[64];
	struct nt_server *server;
	struct nt_loop *loop;
	pthread_t thread;
	atomic_bool over;
	atomic_ulong answered; /* bytes */
	atomic_bool streams;
	atomic_uint streamed; /* stalls */
	struct nt_server_counts counts;
} d;

/* A report is large, a snapshot small, and health says that all before it was done. */
static void answer(void *context, struct nt_reader *reader, const struct nt_request *request)
{
	static char bytes[LARGE];
	size_t n = request->kind == NT_REQUEST_REPORT   ? LARGE
		   : request->kind == NT_REQUEST_HEALTH ? 1
							: SMALL;

	nt_server_counts(d.server, &d.counts);
	if (request->kind == NT_REQUEST_STREAM) {
		nt_reader_stream(reader, NT_FORMAT_JSON);
		return;
	}
	memset(bytes, 'x', sizeof(bytes));
	if (request->kind != NT_REQUEST_HEALTH)
		d.answered += n;
	bytes[n - 1] = '\n';
	nt_reader_send(reader, bytes, n);
}

/* Many stalls at a time, until a reader may get no more of them in this second. */
static void stream_on(void)
{
	for (int i = 0; i < 1000; i++) {
		if (nt_server_wants(d.server, NT_FORMAT_JSON, true))
			nt_server_stream(d.server, NT_FORMAT_JSON, "s\n", 2);
		d.streamed++;
	}
	nt_server_counts(d.server, &d.counts);
	d.streams = !d.counts.skipped;
}

static void every_tick(void *context, uint32_t times)
{
	(void)context, (void)times;
	if (d.streams)
		stream_on();
	else
		nt_server_report_skipped(d.server);
	if (d.over)
		nt_loop_stop(d.loop);
}

static void *serve(void *nothing)
{
	assert_int_equal(nt_server_run(d.server, d.loop), 0);
	return nothing;
}

static int begin(void **state)
{
	struct nt_error error;

	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	d = (struct daemon){.loop = nt_loop_new()};
	snprintf(d.path, sizeof(d.path), "/tmp/nagletrace-unit-%d", getpid());
	d.server = nt_server_open(d.path, (gid_t)-1, answer, NULL, &error);
	assert_non_null(d.server);
	assert_true(nt_loop_timer(d.loop, 0, 10 * MS, every_tick, NULL) >= 0);
	return pthread_create(&d.thread, NULL, serve, NULL);
}

static int end(void **state)
{
	d.over = true;
	pthread_join(d.thread, NULL);
	nt_server_close(d.server);
	nt_loop_free(d.loop);
	return 0;
}

/* ---- readers ---- */

/* Returns false if there is no room for the request between the two. */
static bool ask(int fd, const char *what)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "{\"request\":\"%s\"}\n", what);

	return send(fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT) == n;
}

static int reader_of(int user)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte;

	uid = user;
	memcpy(at.sun_path, d.path, sizeof(d.path));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ask(fd, "health");
	assert_int_equal(recv(fd, &byte, 1, 0), 1); /* so the server knows whose it is */
	return fd;
}

/* The server has done all that was sent before, and what is due by its clock. */
static void settle(void)
{
	int fd = reader_of(0);
	char byte;

	for (int i = 0; i < 3; i++) {
		ask(fd, "health");
		assert_int_equal(recv(fd, &byte, 1, 0), 1);
	}
	close(fd);
}

static bool is_gone(int fd)
{
	static char bytes[LARGE];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return !n || errno == ECONNRESET;
}

/* What waits in the server: of its answers all but what the kernel has. */
static size_t waiting(const int *fds, size_t n)
{
	size_t bytes = d.answered;

	for (size_t i = 0; i < n; i++) {
		int in_kernel;

		assert_int_equal(ioctl(fds[i], FIONREAD, &in_kernel), 0);
		bytes -= in_kernel;
	}
	return bytes;
}

/* ---- the tests ---- */

TEST(as_much_waits_for_a_reader_that_reads_nothing)
{
	int fd = reader_of(ALICE);
	size_t waits = 0;

	for (int i = 0; i < 10000 && waits < READER_BYTES; i++) {
		ask(fd, "snapshot");
		settle();
		waits = waiting(&fd, 1);
	}
	while (ask(fd, "snapshot"))
		;
	settle();
	assert_in_range(waiting(&fd, 1), READER_BYTES, READER_BYTES + SMALL);
	close(fd);
}

/* Has this user ask for large answers and read none, until it is refused one; returns how many
 * readers it has. */
static size_t ask_for_much(int user, int *fds)
{
	struct nt_server_counts before;
	size_t n = 0;

	settle();
	before = d.counts;
	for (;;) {
		assert_true(n < NT_USER_READERS);
		fds[n++] = reader_of(user);
		settle();
		if (d.counts.refused > before.refused)
			return n;
		ask(fds[n - 1], "report");
		settle();
	}
}

TEST(as_much_waits_for_one_user_and_for_all)
{
	int fds[64], other;
	size_t n = 0, waits;

	n = ask_for_much(ALICE, fds);
	waits = waiting(fds, n);
	assert_in_range(waits, USER_BYTES, USER_BYTES + LARGE);
	assert_int_equal(d.counts.refusals[NT_REFUSED_USER_WAITING], 1);
	for (int user = ALICE + 1; !d.counts.refusals[NT_REFUSED_ALL_WAITING]; user++)
		n += ask_for_much(user, fds + n);
	waits = waiting(fds, n);
	assert_in_range(waits, ALL_BYTES, ALL_BYTES + LARGE);
	/* root has as much besides */
	other = reader_of(0);
	ask(other, "report");
	settle();
	assert_in_range(waiting(fds, n), waits + LARGE, waits + LARGE);
	close(other);
	while (n)
		close(fds[--n]);
}

TEST(who_is_silent_is_sent_away)
{
	int silent = reader_of(ALICE), asked = reader_of(ALICE), streams = reader_of(ALICE);

	ask(streams, "stream");
	settle();
	ahead_s += SILENCE_S - 1;
	ask(asked, "snapshot");
	settle();
	assert_false(is_gone(silent));
	ahead_s += 2;
	settle();
	assert_true(is_gone(silent));
	assert_false(is_gone(asked));
	assert_false(is_gone(streams));
	ahead_s += SILENCE_S;
	settle();
	assert_true(is_gone(asked));
	assert_false(is_gone(streams));
	close(silent);
	close(asked);
	close(streams);
}

TEST(who_gets_no_more_in_a_second_is_told_though_nothing_follows)
{
	unsigned int got = 0, skipped = 0;
	int fd = reader_of(ALICE);
	char line[128];
	FILE *from;

	ask(fd, "stream");
	settle();
	d.streams = true;
	from = fdopen(fd, "r");
	while (!skipped && fgets(line, sizeof(line), from)) {
		got += !strcmp(line, "s\n");
		sscanf(line, "{\"type\":\"skipped\",\"protocol\":1,\"stalls\":%u,", &skipped);
	}
	assert_true(skipped);
	assert_int_equal(got + skipped, d.streamed);
	fclose(from);
}

TEST(a_longer_request_is_none)
{
	static char line[REQUEST_BYTES + 1];

	for (int more = 0; more < 2; more++) {
		int fd = reader_of(ALICE), n = REQUEST_BYTES + more;

		memset(line, ' ', sizeof(line));
		memcpy(line, "{\"request\":\"snapshot\"}", 22);
		line[n - 1] = '\n';
		assert_int_equal(send(fd, line, n, MSG_NOSIGNAL), n);
		settle();
		assert_int_equal(is_gone(fd), more);
		close(fd);
	}
	assert_int_equal(d.answered, SMALL);
}

UNIT_MAIN_WITH(begin, end)
