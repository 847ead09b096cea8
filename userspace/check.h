/* SPDX-License-Identifier: GPL-2.0 */
/* The command that shows what this kernel offers. */
#ifndef NT_CHECK_H
#define NT_CHECK_H

#include "options.h"

/* Prints what would be used. Returns NT_EXIT_OK if it suffices, else NT_EXIT_KERNEL or
 * NT_EXIT_PERMISSION. */
enum nt_exit nt_check(const struct nt_options *opts);

#endif /* NT_CHECK_H */
