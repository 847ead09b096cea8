/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The keeper: a process beside the tracer that reads no data that others wrote. It holds the
 * capabilities that naming frames needs, so that the tracer need not hold them. It starts a worker
 * for each stack, and kills a worker that takes too long.
 */
#pragma once

#include <sys/capability.h>
#include <sys/types.h>
#include "base/clock.h"

/* The stacks that the keeper names at a time, each of another owner (struct nt_names_request). */
#define NT_KEEPER_WORKERS 2

/* The keeper kills a worker after this time, whatever the worker waits for. */
#define NT_KEEPER_DEADLINE_NS (2 * NT_SECOND_NS)

/* A capability that naming needs to read other users' processes, and what is lost without it. */
struct nt_keeper_privilege {
	cap_value_t cap;
	const char *name, *part;
};

#define NT_KEEPER_PRIVILEGES 3
extern const struct nt_keeper_privilege nt_keeper_privileges[NT_KEEPER_PRIVILEGES];

struct nt_keeper {
	pid_t pid;
	/* SOCK_SEQPACKET: takes struct nt_names_request, gives the replies of wire.h */
	int fd;
};

/*
 * Starts the keeper. It ends when all descriptors of fd are closed, and also with the thread that
 * started it, however that ends; nobody has to wait for it. A worker's reply could carry out what
 * is in its memory, so the keeper first forgets secret, of size bytes. Returns 0 or -errno.
 */
int nt_keeper_start(struct nt_keeper *keeper, void *secret, size_t size);
