/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace trace` traces until a signal, an option or the end of its processes stops it. */
#ifndef NT_TRACE_H
#define NT_TRACE_H

#include "base/error.h"
#include "terms/settings.h"

/* Runs a trace; messages go to stderr. Returns the exit code. */
enum nt_exit nt_trace(const struct nt_settings *settings);

#endif /* NT_TRACE_H */
