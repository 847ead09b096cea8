/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The streams stdout and stderr, which keep no signal waiting. A write waits for its reader as long
 * as nothing ends the command. From the end on, a reader that takes nothing for a quarter of a
 * second, and until half a second after the end, gets no more: that write and all later ones fail
 * with ETIME. What ends the command is a signal: at the end of --duration it waits for its reader,
 * as a pager wants.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* Belongs before the first output. Where it cannot replace a stream, that stays as it is. */
void nt_streams_open(void);

/* These signals end the command: NT_SIGNAL(number) of each. They are blocked, so that they wait
 * for whoever takes them. Returns 0 or -errno. */
int nt_streams_heed(uint64_t signals);

/* Somebody took a signal; if it is one of these, the command ends now. */
void nt_streams_signal(uint32_t number);

/*
 * For a library that writes to a descriptor itself: returns stdout as a FILE with a descriptor of
 * its own, or NULL with errno set. The library writes to it between the other two calls. Once the
 * reader is given up, what the library writes is discarded.
 */
FILE *nt_streams_for_library(void);
void nt_streams_begin_library(void);
void nt_streams_end_library(void);

/*
 * err: 0, or -errno of a write to stdout. Complains in one line, and returns the exit code. It is
 * no failure that the reader has closed its end.
 */
enum nt_exit nt_streams_written(int err);
