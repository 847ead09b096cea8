/* SPDX-License-Identifier: GPL-2.0 */
#ifndef NT_FIX_H
#define NT_FIX_H

#include "options.h"

/*
 * `nagletrace fix`: the remedy tried on a running process. Looks for stalls, sets TCP_NODELAY or
 * TCP_QUICKACK on the connections that stalled, looks again for as long, sets it back, and tells
 * the difference.
 */
enum nt_exit nt_fix(const struct nt_options *opts);

#endif /* NT_FIX_H */
