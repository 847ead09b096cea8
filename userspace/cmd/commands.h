/* SPDX-License-Identifier: GPL-2.0 */
/* This file lists the commands, and bounds the length of a message about a command line. */
#ifndef NT_COMMANDS_H
#define NT_COMMANDS_H

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

#endif /* NT_COMMANDS_H */
