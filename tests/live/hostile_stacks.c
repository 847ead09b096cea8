// SPDX-License-Identifier: GPL-2.0
/*
 * Stalls again and again from call stacks of which it makes the frames up: they go through a file
 * that it has mapped, each stall through other addresses, so that each is to be named anew.
 *
 *	hostile-stacks FILE FIRST LAST HOW
 *
 * FIRST and LAST: the offsets in FILE between which those addresses lie. HOW: plain; truncated
 * (the file becomes short and long while it is read); fifo, link (in its place there is a FIFO, or
 *a link to one, under the name that the kernel shows); many (60,000 more mappings). Prints "ready",
 * waits for a line on stdin, and stalls until it is killed, 60 s at most.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH   40
#define MANY    60000
#define SECONDS 60

struct frame {
	struct frame *next;
	uint64_t address;
};

static struct frame frames[DEPTH];
static int file, connection;
static off_t size;

/* write(), with frames as the chain of its callers. */
static void write_from(struct frame *first, const void *bytes, size_t n)
{
#if defined(__x86_64__)
	long result = 1; /* SYS_write */

	__asm__ volatile("mov %%rbp, %%r12\n\tmov %[first], %%rbp\n\tsyscall\n\tmov %%r12, %%rbp"
			 : "+a"(result)
			 : "D"(connection), "S"(bytes), "d"(n), [first] "r"(first)
			 : "rcx", "r11", "r12", "memory");
#else
	if (write(connection, bytes, n) < 0)
		exit(1);
#endif
}

static void serve(int listener)
{
	int peer = accept(listener, NULL, NULL);
	char buffer[64];
	int bytes = 0;
	ssize_t n;

	prctl(PR_SET_NAME, "hostile-server");
	close(connection);
	while ((n = read(peer, buffer, sizeof(buffer))) > 0)
		if ((bytes += n) == 13) {
			bytes = 0;
			if (write(peer, "ok", 2) < 0)
				break;
		}
	_exit(0);
}

static void *cut_and_mend(void *nothing)
{
	for (;;) {
		if (ftruncate(file, 4096) || ftruncate(file, size))
			exit(1);
	}
	return nothing;
}

static void put_in_its_place(const char *path, const char *how)
{
	char deleted[4096 + 16], aside[4096 + 16];

	snprintf(deleted, sizeof(deleted), "%s (deleted)", path);
	snprintf(aside, sizeof(aside), "%s.aside", path);
	if (unlink(path) || mkfifo(!strcmp(how, "fifo") ? deleted : aside, 0600))
		exit(1);
	if (!strcmp(how, "link") && symlink(aside, deleted))
		exit(1);
}

static void connect_to_myself(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&at, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &length))
		exit(1);
	connection = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(connection, (struct sockaddr *)&at, length))
		exit(1);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, 9);
		serve(listener);
	}
	close(listener);
}

int main(int argc, char **argv)
{
	uint64_t base, first, last;
	const char *how;
	pthread_t thread;
	char answer[2];

	if (argc != 5)
		return 2;
	alarm(SECONDS);
	how = argv[4];
	first = strtoull(argv[2], NULL, 0);
	last = strtoull(argv[3], NULL, 0);
	file = open(argv[1], strcmp(how, "truncated") ? O_RDONLY : O_RDWR);
	size = lseek(file, 0, SEEK_END);
	base = (uint64_t)mmap(NULL, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (base == (uint64_t)MAP_FAILED)
		return 1;
	connect_to_myself();
	for (int i = 0; !strcmp(how, "many") && i < MANY; i++)
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
			return 1;
	if (!strcmp(how, "fifo") || !strcmp(how, "link"))
		put_in_its_place(argv[1], how);
	if (!strcmp(how, "truncated") && pthread_create(&thread, NULL, cut_and_mend, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (uint64_t round = 0;; round++) {
		for (size_t i = 0; i < DEPTH; i++) {
			frames[i].next = i + 1 < DEPTH ? &frames[i + 1] : NULL;
			frames[i].address = base + first + (round * DEPTH + i) % (last - first);
		}
		write_from(frames, "header", 6);
		write_from(frames, "content", 7);
		if (read(connection, answer, sizeof(answer)) <= 0)
			return 1;
	}
}
