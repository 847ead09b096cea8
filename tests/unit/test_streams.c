// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/streams.c userspace/base/log.c userspace/base/text.c
/*
 * Each test has a child that writes to its stdout, and ends with 0 if all went as it should: the
 * streams of this process are cmocka's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include "unit.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/streams.h"
#include "base/text.h"

#define SIZE    (300 * 1024) /* more than a pipe, a socket or a terminal takes */
#define A_WHILE 30           /* s; no child lives so long */

/* ---- the child ---- */

static int complaints; /* the child's own way to say what went wrong */

#define WANT(condition)                                                                   \
	do {                                                                              \
		if (!(condition)) {                                                       \
			dprintf(complaints, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, \
				#condition, errno);                                       \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

static void open_streams(void)
{
	const uint64_t set = NT_SIGNAL(SIGINT) | NT_SIGNAL(SIGTERM);
	const struct itimerspec most = {.it_value = {.tv_sec = A_WHILE}};
	struct sigevent kill_it = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	sigset_t blocked;
	timer_t timer;

	WANT(!timer_create(CLOCK_MONOTONIC, &kill_it, &timer));
	WANT(!timer_settime(timer, 0, &most, NULL));
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	WANT(!sigprocmask(SIG_BLOCK, &blocked, NULL));
	nt_streams_open();
	WANT(!nt_streams_heed(set));
}

static pid_t begin(int out, void (*work)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	complaints = dup(STDERR_FILENO);
	dup2(out, STDOUT_FILENO);
	open_streams();
	work();
	_exit(0);
}

static char byte(size_t at)
{
	return 'a' + at % 23;
}

/* Writes lines and flushes each, as the writers of the reports do. Returns 0 or -errno. */
static int write_much(void)
{
	int err = 0;

	for (size_t at = 0; at < SIZE && !err; at++) {
		putchar(byte(at));
		if (at % 1000 == 999)
			err = nt_flush(stdout);
	}
	return err ? err : nt_flush(stdout);
}

/*
 * Leaves no room, as another process would that writes to the same place. A terminal passes on what
 * it has a little later, and then has room once more.
 */
static void fill(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	char text[1000] = "";

	WANT(!fcntl(fd, F_SETFL, flags | O_NONBLOCK));
	for (int i = 0; i < 10; i++) {
		while (write(fd, text, sizeof(text)) > 0 || write(fd, text, 1) > 0)
			;
		poll(NULL, 0, 5);
	}
	WANT(!fcntl(fd, F_SETFL, flags));
}

static void write_all(void)
{
	WANT(!write_much());
}

/* Writes until the reader is given up; everything later fails at once. */
static uint64_t write_in_vain(void)
{
	uint64_t failed_ns;

	WANT(write_much() == -ETIME);
	failed_ns = nt_now_ns();
	WANT(nt_streams_written(-ETIME) == NT_EXIT_FAILED);
	for (int i = 0; i < 1000; i++) {
		putchar('x');
		WANT(nt_flush(stdout));
	}
	return failed_ns;
}

static void write_until_a_signal(void)
{
	uint64_t began_ns = nt_now_ns();

	WANT(write_in_vain() - began_ns >= 500 * MS);
}

static void take_a_signal_and_write(void)
{
	uint64_t began_ns = nt_now_ns();

	nt_streams_signal(SIGHUP); /* it does not end the command */
	nt_streams_signal(SIGTERM);
	WANT(write_in_vain() - began_ns >= 500 * MS);
}

static void write_after_a_signal(void)
{
	raise(SIGINT);
	WANT(!write_much());
}

/* What the command does at its end took longer than a reader has. */
static void write_late_after_a_signal(void)
{
	const struct timespec work = {.tv_nsec = 600 * MS};
	uint64_t began_ns;

	fputs("it has room once", stdout);
	WANT(!nt_flush(stdout));
	fill(STDOUT_FILENO);
	nt_streams_signal(SIGTERM);
	nanosleep(&work, NULL);
	began_ns = nt_now_ns();
	WANT(write_in_vain() - began_ns < 100 * MS);
}

/* Writes as ncurses does: again and again until everything is written. */
static void write_as_a_library(void)
{
	FILE *file = nt_streams_for_library();
	char text[4096] = "";

	WANT(file && fileno(file) > STDERR_FILENO);
	nt_streams_begin_library();
	for (size_t left = SIZE; left;) {
		ssize_t n = write(fileno(file), text, left < sizeof(text) ? left : sizeof(text));

		WANT(n > 0 || errno == EINTR || errno == EAGAIN);
		left -= n > 0 ? n : 0;
	}
	nt_streams_end_library();
	putchar('x');
	WANT(nt_flush(stdout) == -ETIME);
}

/* ---- the reader ---- */

static int end_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* The child sleeps, since nobody reads. */
static void wait_until_it_waits(pid_t pid)
{
	char path[32], line[256] = "";
	int same = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (int i = 0; same < 5 && i < A_WHILE * 100; i++) {
		FILE *file = fopen(path, "r");

		assert_non_null(file);
		assert_non_null(fgets(line, sizeof(line), file));
		fclose(file);
		same = strstr(line, ") S ") ? same + 1 : 0;
		poll(NULL, 0, 10);
	}
	assert_int_equal(same, 5);
}

/* Reads all, and finds each byte at its place. */
static void read_all(int fd)
{
	char text[8192];
	size_t at = 0;
	ssize_t n;

	while ((n = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < n; i++, at++)
			assert_int_equal(text[i], byte(at));
	assert_int_equal(at, SIZE);
}

struct ends {
	int reader, writer;
};

static struct ends a_pipe(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	return (struct ends){fds[0], fds[1]};
}

static struct ends an_impatient_pipe(void)
{
	struct ends ends = a_pipe();

	assert_int_equal(fcntl(ends.writer, F_SETFL, O_NONBLOCK), 0);
	return ends;
}

static struct ends a_socket(void)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	return (struct ends){fds[0], fds[1]};
}

/* The writer's end is the terminal's, or, backwards, that of who plays the terminal. */
static struct ends a_terminal_either_way(bool backwards)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
	struct termios modes;

	assert_true(master >= 0);
	assert_int_equal(grantpt(master), 0);
	assert_int_equal(unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(slave >= 0);
	assert_int_equal(tcgetattr(slave, &modes), 0);
	cfmakeraw(&modes);
	assert_int_equal(tcsetattr(slave, TCSANOW, &modes), 0);
	return backwards ? (struct ends){slave, master} : (struct ends){master, slave};
}

static struct ends a_terminal(void)
{
	return a_terminal_either_way(false);
}

/* It cannot be opened again, so the kernel lets writes wait. */
static struct ends a_terminal_backwards(void)
{
	return a_terminal_either_way(true);
}

static struct ends (*const outputs[])(void) = {a_pipe, an_impatient_pipe, a_socket, a_terminal,
					       a_terminal_backwards};
#define N_OUTPUTS (sizeof(outputs) / sizeof(outputs[0]))

/* A child for each output; nobody reads them. */
struct children {
	struct ends ends[N_OUTPUTS];
	pid_t pids[N_OUTPUTS];
};

static struct children begin_all(void (*work)(void))
{
	struct children all;

	for (size_t i = 0; i < N_OUTPUTS; i++) {
		all.ends[i] = outputs[i]();
		all.pids[i] = begin(all.ends[i].writer, work);
	}
	return all;
}

/* signal: 0 if they end without one */
static void end_all(const struct children *all, int signal, int status)
{
	for (size_t i = 0; signal && i < N_OUTPUTS; i++)
		kill(all->pids[i], signal);
	for (size_t i = 0; i < N_OUTPUTS; i++) {
		assert_int_equal(end_of(all->pids[i]), status);
		close(all->ends[i].writer);
		close(all->ends[i].reader);
	}
}

/* ---- the tests ---- */

TEST(a_reader_that_comes_late_gets_everything)
{
	for (size_t i = 0; i < 3; i++) { /* a terminal has no end that one can read to */
		struct ends ends = outputs[i]();
		pid_t pid = begin(ends.writer, write_all);

		close(ends.writer);
		wait_until_it_waits(pid);
		read_all(ends.reader);
		assert_int_equal(end_of(pid), 0);
		close(ends.reader);
	}
}

TEST(a_signal_ends_a_write_that_nobody_reads)
{
	struct children all = begin_all(write_until_a_signal);

	for (size_t i = 0; i < N_OUTPUTS; i++)
		wait_until_it_waits(all.pids[i]);
	end_all(&all, SIGINT, 0);
}

TEST(a_signal_that_somebody_took_ends_it_too)
{
	struct children all = begin_all(take_a_signal_and_write);

	end_all(&all, 0, 0);
}

TEST(the_time_of_a_reader_begins_with_the_end_of_the_command)
{
	struct children all = begin_all(write_late_after_a_signal);

	end_all(&all, 0, 0);
}

TEST(a_reader_that_goes_on_reading_gets_everything_after_a_signal_too)
{
	for (size_t i = 0; i < 3; i++) {
		struct ends ends = outputs[i]();
		pid_t pid = begin(ends.writer, write_after_a_signal);

		close(ends.writer);
		read_all(ends.reader);
		assert_int_equal(end_of(pid), 0);
		close(ends.reader);
	}
}

TEST(what_a_library_writes_is_discarded_after_a_signal)
{
	struct children all = begin_all(write_as_a_library);

	for (size_t i = 0; i < N_OUTPUTS; i++)
		wait_until_it_waits(all.pids[i]);
	end_all(&all, SIGTERM, 0);
}

TEST(a_file_has_everything)
{
	FILE *file = tmpfile();

	assert_non_null(file);
	assert_int_equal(end_of(begin(fileno(file), write_all)), 0);
	assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
	read_all(fileno(file));
	fclose(file);
}

/* Others have the same pipe or terminal open: a shell that meets O_NONBLOCK at its terminal ends.
 */
TEST(the_descriptor_that_others_share_stays_as_it_was)
{
	struct children all = begin_all(write_all);

	for (size_t i = 0; i < N_OUTPUTS; i++) {
		int before = outputs[i] == an_impatient_pipe ? O_NONBLOCK : 0;

		wait_until_it_waits(all.pids[i]);
		assert_int_equal(fcntl(all.ends[i].writer, F_GETFL) & O_NONBLOCK, before);
	}
	end_all(&all, SIGKILL, SIGKILL);
}

UNIT_MAIN()
