/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace top`: a live view that fills the terminal. */
#ifndef NT_TOP_H
#define NT_TOP_H

#include "options.h"

/* Shows what the daemon tells, or traces, until q, a signal or --duration. */
enum nt_exit nt_top(const struct nt_options *opts);

#endif /* NT_TOP_H */
