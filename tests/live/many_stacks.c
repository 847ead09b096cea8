// SPDX-License-Identifier: GPL-2.0
/*
 * Holds bytes from 32768 different call stacks, which a cork releases at once, then stalls for
 * three seconds from one more: what --stacks keeps in the kernel must not stay full. Waits for a
 * line on stdin before it begins; prints how many rounds stalled.
 */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BITS 15

static int fd;

static void cork(int on)
{
	setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

static void wait_until_acknowledged(void)
{
	int bytes;

	while (!ioctl(fd, SIOCOUTQ, &bytes) && bytes)
		sched_yield();
}

static void put(size_t bytes)
{
	static const char letters[64];

	if (write(fd, letters, bytes) != (ssize_t)bytes)
		exit(1);
}

static void descend(unsigned int path, int left);

#define NEXT(path, left)                           \
	do {                                       \
		if (left)                          \
			descend(path, left - 1);   \
		else                               \
			put(10);                   \
		__asm__ volatile("" ::: "memory"); \
	} while (0) /* no tail call, and no two places made one */

static __attribute__((noinline)) void descend(unsigned int path, int left)
{
	if (path & (1U << left))
		NEXT(path, left);
	else
		NEXT(path, left);
}

static __attribute__((noinline)) void stalling_write(void)
{
	put(7);
	__asm__ volatile("" ::: "memory");
}

static void serve(int listener)
{
	int peer = accept(listener, NULL, NULL);
	char buffer[4096];
	ssize_t n;

	close(fd); /* so that the end is seen here */
	fclose(stdout);

	/* a round of the stall ends with this byte's answer; the flood before is answered by
	 * nothing */
	while ((n = read(peer, buffer, sizeof(buffer))) > 0)
		if (n == 7 || n == 13)
			if (write(peer, "ok", 2) < 0)
				break;
	_exit(0);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int stall_for(double seconds)
{
	double until = now() + seconds;
	int stalled = 0;
	char answer[2];

	while (now() < until) {
		double began = now();

		put(6);
		stalling_write();
		if (read(fd, answer, sizeof(answer)) <= 0)
			exit(1);
		stalled += now() - began > 0.03;
	}
	return stalled;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		return 1;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&at, len))
		return 1;
	if (!fork())
		serve(listener);
	close(listener);
	if (getchar() == EOF)
		return 1;
	for (unsigned int path = 0; path < 1U << BITS; path++) {
		cork(1);
		descend(path, BITS - 1);
		cork(0);
		wait_until_acknowledged();
	}
	sleep(1); /* all of it is read */
	printf("%d\n", stall_for(3));
	return 0;
}
