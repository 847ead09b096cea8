/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The event loop of every command that waits for more than one thing: descriptors, times and
 * signals, each with a function to call. Times are CLOCK_MONOTONIC, in ns; functions return 0 or
 * -errno unless they say otherwise.
 *
 * In a turn the loop calls those that are ready in the order in which they were added, each once. A
 * call may add, forget, set and stop whatever it likes, but must not begin another turn. One that
 * has much to do returns after NT_SLICE_NS: as long as its descriptor is ready it is called again
 * in the next turn, after all others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define NT_SLICE_NS (20 * NT_SECOND_NS / 1000)
#define NT_NEVER    UINT64_MAX

struct nt_loop;

/*
 * what: of a descriptor, the events that are ready (EPOLLIN and others); of a timer, how many times
 * it has expired since the last call; of signals, the number of the one that came.
 */
typedef void nt_loop_call(void *context, uint32_t what);

/* Returns NULL after a message. The caller of nt_loop_free() has closed all that it watches. */
struct nt_loop *nt_loop_new(void);
void nt_loop_free(struct nt_loop *loop);

/*
 * Calls while one of the events is ready at the descriptor, or EPOLLERR or EPOLLHUP, which the
 * kernel always reports; so events may be 0. -EPERM: the descriptor is a file or directory, for
 * which nobody can wait.
 */
int nt_loop_watch(struct nt_loop *loop, int fd, uint32_t events, nt_loop_call *call, void *context);

/* Watches the descriptor no longer; does nothing if it is not watched. Belongs before its close().
 */
void nt_loop_forget(struct nt_loop *loop, int fd);

/*
 * Returns a timer, which the loop owns, or -errno. It calls at at_ns, or at once if that is past
 * (NT_NEVER: not at all), then at multiples of each_ns after that (0: only once). A loop that was
 * busy at some of these times makes up for them by one call.
 */
int nt_loop_timer(struct nt_loop *loop, uint64_t at_ns, uint64_t each_ns, nt_loop_call *call,
		  void *context);

/* Returns the time that is ns from now. */
static inline uint64_t nt_in_ns(uint64_t ns)
{
	uint64_t now_ns = nt_now_ns();

	return ns < NT_NEVER - now_ns ? now_ns + ns : NT_NEVER;
}

/* Sets other times for a timer. */
int nt_timer_set(int timer, uint64_t at_ns, uint64_t each_ns);

/*
 * Until nt_loop_signals(), SIGINT and SIGTERM end the process at once, with NT_EXIT_OK, and in
 * system calls that take long too: loading a program is one, in which the kernel looks for signals
 * that nobody blocks. This is for a command that has nothing yet to print, or to set back.
 */
void nt_loop_signals_end_at_once(void);

/*
 * Blocks these signals, and calls for each that comes. ends: those that end the command; the output
 * does not keep them waiting (base/streams.h). Each set has NT_SIGNAL(number) of its signals, also
 * of those that the C library keeps out of its own sets. Returns 0 or -errno.
 */
#define NT_SIGNAL(number) (1ULL << ((number)-1))
int nt_loop_signals(struct nt_loop *loop, uint64_t ends, uint64_t others, nt_loop_call *call,
		    void *context);

/*
 * A turn waits until something is ready, at most until until_ns (NT_NEVER; 0: it does not wait),
 * and calls. An error is one of waiting; a signal that nobody blocks may end the wait early. Run
 * makes turns until one of the calls stops the loop, which skips the calls that are left, and logs
 * an error. End stops the loop that is its context.
 */
int nt_loop_turn(struct nt_loop *loop, uint64_t until_ns);
int nt_loop_run(struct nt_loop *loop);
void nt_loop_stop(struct nt_loop *loop);
nt_loop_call nt_loop_end;
bool nt_loop_stopped(const struct nt_loop *loop);

/* Returns a descriptor that is readable when a turn has something to call, for a loop around it. */
int nt_loop_fd(const struct nt_loop *loop);
