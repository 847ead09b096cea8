/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace report` prints the daemon's report; it needs access to the socket, and no
 * privilege. */
#ifndef NT_SHOW_REPORT_H
#define NT_SHOW_REPORT_H

#include "base/error.h"
#include "terms/settings.h"

/* Prints the report, or with --follow each stall, until SIGINT or until the daemon ends. */
enum nt_exit nt_show_report(const struct nt_settings *settings);

#endif /* NT_SHOW_REPORT_H */
