/* SPDX-License-Identifier: GPL-2.0 */
/* A socket of another process on which `fix` sets an option for a while: its place and its
 * state. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/hash.h"
#include "capture/processes.h"
#include "fix/verdict.h"
#include "terms/tuple.h"

enum nt_fix_state {
	NT_FIX_PLANNED,
	NT_FIX_SET,
	NT_FIX_RESTORED,
	NT_FIX_HAD_IT,  /* TCP_NODELAY was on before; nothing was changed */
	NT_FIX_CHANGED, /* the program has switched it off meanwhile; left so */
	NT_FIX_CLOSED,  /* before it was set, or while it was */
	NT_FIX_FAILED,  /* setting it failed: err */
	NT_FIX_STUCK,   /* setting it back failed: err; -EBADF or -ESRCH: open, but not found */
	NT_FIX_STATES,
};

struct nt_fix_socket {
	struct nt_socket_key key;
	UT_hash_handle hh;
	struct nt_process process; /* the process that has it, as fd */
	pid_t tid;                 /* the thread that has it */
	int fd;
	uint64_t cookie; /* SO_COOKIE; no other socket has it */
	uint64_t inode;  /* no other socket has it either, see /proc/net/tcp; 0: unknown */
	int former;      /* the option's value before */
	enum nt_fix_state state;
	int err;     /* -errno */
	bool away;   /* no longer at this descriptor */
	bool looked; /* checked among the open ones; missed: how often it was missing there */
	unsigned int missed;
	bool stalled;
	uint64_t set_ns; /* CLOCK_MONOTONIC; 0: never */
	uint64_t stalls_before, stalls_during;
	struct nt_fix_pair pair; /* the stalls that can be compared */
};
