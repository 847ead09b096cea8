// SPDX-License-Identifier: GPL-2.0
#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define NEVER UINT64_MAX

/*
 * A signal takes effect within 1 s. A trace takes 0.65 s of it at most to end (cmd/trace.c), and
 * may meet only then a reader that takes nothing; the rest is to detach.
 */
#define AFTER_END_NS  (NT_SECOND_NS / 2)
#define AFTER_MOVE_NS (NT_SECOND_NS / 4)

/* The interval at which a write that may wait in the kernel is interrupted: must it end? */
#define TICK_US 50000

/* How a stream writes, so that it does not wait in the kernel. */
enum way {
	WRITE,  /* a file; or a pipe or terminal that we have opened again, with O_NONBLOCK */
	SEND,   /* a socket: MSG_DONTWAIT */
	TICKED, /* may wait: a timer interrupts it */
};

struct stream {
	int fd;
	enum way way;
	bool moved; /* the reader has taken something since moved_ns, or there was room */
	uint64_t moved_ns;
	volatile sig_atomic_t given_up;
	int why; /* -errno of the first write that failed; 0: none did */
};

static struct stream out = {.fd = STDOUT_FILENO, .moved = true};
static struct stream err = {.fd = STDERR_FILENO, .moved = true};

static int signals = -1; /* a signalfd, from which nobody reads: readable while one is pending */
static uint64_t heeded;
static volatile uint64_t end_ns = NEVER; /* when a signal ended the command */

/* ---- the end ---- */

/* From now on we wait for a reader that has left no room: it may be met only later, when the
 * command has nothing left to do. */
static void note_room(struct stream *s)
{
	struct pollfd fd = {.fd = s->fd, .events = POLLOUT};

	if (poll(&fd, 1, 0))
		return;
	s->moved = false;
	s->moved_ns = end_ns;
}

/* Makes only system calls, as signal handlers may. */
static void note_end(void)
{
	if (end_ns != NEVER)
		return;
	end_ns = nt_now_ns();
	note_room(&out);
	note_room(&err);
}

/* Uses the kernel's signal set, since the C library leaves two signals out of its own. */
int nt_streams_heed(uint64_t set)
{
	int fd = syscall(SYS_signalfd4, signals, &set, sizeof(set), SFD_CLOEXEC | SFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	signals = fd;
	heeded = set;
	return 0;
}

void nt_streams_signal(uint32_t number)
{
	if (heeded & 1ULL << (number - 1))
		note_end();
}

static uint64_t give_up_ns(const struct stream *s)
{
	uint64_t after_move_ns = s->moved_ns + AFTER_MOVE_NS;

	if (end_ns == NEVER)
		return NEVER;
	return after_move_ns > end_ns + AFTER_END_NS ? after_move_ns : end_ns + AFTER_END_NS;
}

/* ---- to wait for a reader ---- */

static void note_move(struct stream *s, uint64_t now_ns)
{
	if (s->moved)
		s->moved_ns = now_ns;
	s->moved = false;
}

static bool must_give_up(struct stream *s, uint64_t now_ns)
{
	if (now_ns >= give_up_ns(s))
		s->given_up = true;
	return s->given_up;
}

static int wait_for_room(struct stream *s)
{
	uint64_t now_ns = nt_now_ns();

	note_move(s, now_ns);
	for (; !must_give_up(s, now_ns); now_ns = nt_now_ns()) {
		/* once the command is to end, a signal says nothing new */
		struct pollfd fds[] = {{.fd = s->fd, .events = POLLOUT},
				       {.fd = end_ns == NEVER ? signals : -1, .events = POLLIN}};
		uint64_t until_ns = give_up_ns(s), left_ns = until_ns - now_ns;
		const struct timespec left = {left_ns / NT_SECOND_NS, left_ns % NT_SECOND_NS};

		if (ppoll(fds, 2, until_ns == NEVER ? NULL : &left, NULL) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents)
			note_end();
		if (fds[0].revents)
			return 0;
	}
	return -ETIME;
}

/* ---- writes that may wait in the kernel ---- */

static struct {
	struct stream *stream; /* NULL: none */
	int fd;                /* written to; it becomes /dev/null once the reader is given up */
	int null;
	sigset_t mask; /* before it began */
} ticked = {.fd = -1, .null = -1};

/*
 * Makes only system calls, as signal handlers may. The signal comes again and again, so that it
 * cannot fall between a look and the write that waits; and what is written after it goes nowhere.
 */
static void tick(int number)
{
	int kept = errno;
	uint64_t pending = 0;

	if (ticked.stream) {
		syscall(SYS_rt_sigpending, &pending, sizeof(pending));
		if (pending & heeded)
			note_end();
		if (must_give_up(ticked.stream, nt_now_ns()))
			dup2(ticked.null, ticked.fd);
	}
	errno = kept;
}

static void set_timer(long us)
{
	const struct itimerval every = {{0, us}, {0, us}};

	setitimer(ITIMER_REAL, &every, NULL);
}

static void begin_ticks(struct stream *s, int fd)
{
	const struct sigaction action = {.sa_handler = tick}; /* no SA_RESTART: it ends the write */
	sigset_t set;

	note_move(s, nt_now_ns());
	ticked.stream = s;
	ticked.fd = fd;
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &set, &ticked.mask);
	set_timer(TICK_US);
}

static void end_ticks(void)
{
	set_timer(0);
	sigprocmask(SIG_SETMASK, &ticked.mask, NULL);
	ticked.stream = NULL;
}

static ssize_t write_ticked(struct stream *s, const char *text, size_t size)
{
	ssize_t n;
	int why;

	begin_ticks(s, s->fd);
	n = write(s->fd, text, size);
	why = errno;
	end_ticks();
	errno = s->given_up ? ETIME : why;
	return s->given_up ? -1 : n;
}

/* ---- the streams ---- */

static ssize_t write_some(struct stream *s, const char *text, size_t size)
{
	switch (s->way) {
	case SEND:
		return send(s->fd, text, size, MSG_DONTWAIT);
	case TICKED:
		return write_ticked(s, text, size);
	default:
		return write(s->fd, text, size);
	}
}

static int write_all(struct stream *s, const char *text, size_t size)
{
	while (size) {
		ssize_t n = s->given_up ? -1 : write_some(s, text, size);
		int why = s->given_up ? -ETIME : n < 0 ? -errno : n ? 0 : -EIO;

		if (n > 0) {
			text += n;
			size -= n;
			s->moved = true;
		}
		if (why == -EAGAIN)
			why = wait_for_room(s);
		if (why && why != -EINTR)
			return why;
	}
	return 0;
}

/* fopencookie(3): returns 0 for an error. */
static ssize_t write_cookie(void *cookie, const char *text, size_t size)
{
	int why = write_all(cookie, text, size);

	struct stream *s = cookie;

	if (!why)
		return size;
	if (!s->why)
		s->why = why;
	errno = -why;
	return 0;
}

/* The other end of a pseudo-terminal: to open it again would make a new one. */
static bool is_master(int fd)
{
	unsigned int number;

	return !ioctl(fd, TIOCGPTN, &number);
}

/*
 * Opens a pipe or terminal anew and puts it in the descriptor's place: its flags are our own then,
 * while those of the inherited one belong to others too, the shell for example.
 */
static bool open_again(int fd)
{
	int flags = fcntl(fd, F_GETFL), own;
	char path[32];

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, (flags & O_ACCMODE) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (own < 0)
		return false;
	flags = dup2(own, fd);
	close(own);
	return flags == fd;
}

static enum way way_of(int fd, mode_t mode)
{
	bool waits = S_ISFIFO(mode) || isatty(fd);

	if (S_ISSOCK(mode))
		return SEND;
	return waits && (is_master(fd) || !open_again(fd)) ? TICKED : WRITE;
}

/* Returns the stream, or instead if it cannot make one. */
static FILE *replace(struct stream *s, FILE *instead)
{
	const cookie_io_functions_t functions = {.write = write_cookie};
	struct stat status;
	FILE *file = NULL;

	if (!fstat(s->fd, &status))
		file = fopencookie(s, "w", functions);
	if (!file)
		return instead;
	s->way = way_of(s->fd, status.st_mode);
	if (s == &err)
		setvbuf(file, NULL, _IONBF, 0);
	else if (isatty(s->fd))
		setvbuf(file, NULL, _IOLBF, 0);
	return file;
}

/* A stdout that is closed stays closed: no other file gets its number. */
static int open_null(void)
{
	int low = open("/dev/null", O_WRONLY | O_CLOEXEC), fd;

	if (low < 0 || low > STDERR_FILENO)
		return low;
	fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(low);
	return fd;
}

void nt_streams_open(void)
{
	signal(SIGPIPE, SIG_IGN); /* the write itself fails instead */
	ticked.null = open_null();
	stdout = replace(&out, stdout);
	stderr = replace(&err, stderr);
}

/* ---- a library that writes ---- */

static int library = -1;

FILE *nt_streams_for_library(void)
{
	FILE *file;
	int flags;

	library = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	flags = library < 0 ? -1 : fcntl(library, F_GETFL);
	if (flags >= 0 && out.way == WRITE) { /* it is ours, and libraries want to wait */
		fcntl(library, F_SETFL, flags & ~O_NONBLOCK);
		out.way = TICKED;
	}
	file = library < 0 ? NULL : fdopen(library, "w");
	if (!file && library >= 0)
		close(library);
	return file;
}

void nt_streams_begin_library(void)
{
	out.moved = true;
	begin_ticks(&out, library);
}

void nt_streams_end_library(void)
{
	end_ticks();
}

/* ---- afterwards ---- */

enum nt_exit nt_streams_written(int why)
{
	/* after a failed write stdio knows only that there was one */
	if (why && out.why)
		why = out.why;
	if (!why || why == -EPIPE)
		return NT_EXIT_OK;
	nt_log("cannot write the output: %s", out.given_up ? "nobody reads it" : strerror(-why));
	return NT_EXIT_FAILED;
}
