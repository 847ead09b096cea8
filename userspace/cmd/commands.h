/* SPDX-License-Identifier: GPL-2.0 */
/* This file lists the commands, declares those that are in this room, and bounds the length of a
 * message about a command line. */
#pragma once

#include "base/error.h"
#include "terms/settings.h"

enum nt_command {
	NT_CMD_TRACE = 0,
	NT_CMD_CHECK,
	NT_CMD_DAEMON,
	NT_CMD_REPORT,
	NT_CMD_TOP,
	NT_CMD_FIX,
	NT_CMD_SAMPLE,
	NT_CMD_HELP,
	NT_CMD_VERSION,
	NT_CMD_JSON_SCHEMA,
};

#define NT_OPTION_ERROR_LEN 256

/* Runs a trace until a signal, an option or the end of its processes stops it. */
enum nt_exit nt_trace(const struct nt_settings *settings);

/* Prints the hooks and features that a trace would use. Returns NT_EXIT_OK if they suffice, else
 * NT_EXIT_KERNEL or NT_EXIT_PERMISSION. */
enum nt_exit nt_check(const struct nt_settings *settings);

/* Prints the daemon's report, or with --follow each stall, until SIGINT or until the daemon ends;
 * that needs access to the socket, and no privilege. */
enum nt_exit nt_show_report(const struct nt_settings *settings);
