/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace report`: what the daemon has, without privilege beyond its socket. */
#ifndef NT_SHOW_REPORT_H
#define NT_SHOW_REPORT_H

#include "options.h"

/* Prints the report, or with --follow each stall until SIGINT or the daemon's end. */
enum nt_exit nt_show_report(const struct nt_options *opts);

#endif /* NT_SHOW_REPORT_H */
