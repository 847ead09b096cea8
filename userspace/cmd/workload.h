/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Traces a command from its start to its end: `nagletrace -- COMMAND`. Three processes share this
 * work: the command, the tracer, and the one that the user started. That one keeps no privilege but
 * to signal; it passes signals on to the command, and ends with the command's exit code.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/loop.h"
#include "terms/settings.h"

/*
 * Makes the processes. Returns true in the tracer only, with the command as the one process in
 * settings->pids: it waits for nt_workload_start(), with the streams and signals that we were
 * given. Belongs before nt_streams_open(). The process that the user started does not return: it
 * ends when both others have, with the exit code of the command, or of the tracer where that is 0.
 */
bool nt_workload_prepare(struct nt_settings *settings, struct nt_error *error);

/* Has the command begin. Returns false if that failed, which the command has reported, or if a
 * signal has ended it before. */
bool nt_workload_start(void);

/* Has the loop take the signals that are the command's, and do nothing: the trace ends with the
 * command. Returns 0 or -errno. */
int nt_workload_watch_signals(struct nt_loop *loop);
