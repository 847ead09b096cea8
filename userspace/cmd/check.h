/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace check` shows what this kernel offers. */
#ifndef NT_CHECK_H
#define NT_CHECK_H

#include "base/error.h"
#include "terms/settings.h"

/* Prints the hooks and features that a trace would use. Returns NT_EXIT_OK if they suffice, else
 * NT_EXIT_KERNEL or NT_EXIT_PERMISSION. */
enum nt_exit nt_check(const struct nt_settings *settings);

#endif /* NT_CHECK_H */
