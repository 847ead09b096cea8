/* SPDX-License-Identifier: GPL-2.0 */
/* The command that traces until it is told to stop. */
#ifndef NT_TRACE_H
#define NT_TRACE_H

#include "options.h"

/* Runs a trace; messages go to stderr. Returns the exit code. */
enum nt_exit nt_trace(const struct nt_options *opts);

#endif /* NT_TRACE_H */
