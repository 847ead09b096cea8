/* SPDX-License-Identifier: GPL-2.0 */
/* The command line: the parser and --help come from one table of options. */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include "terms/settings.h"
#include "cmd/commands.h"

/*
 * Parses argv. Returns 0 with *command and *settings filled, or -EINVAL (-EPERM: we may not look at
 * what an option names) with one line in err (no newline, no control character) that names the
 * option, the value and the remedy. Prints nothing. *settings points into argv.
 */
int nt_options_parse(int argc, char **argv, enum nt_command *command, struct nt_settings *settings,
		     char *err, size_t err_size);

/* Prints usage and options in at most 80 columns: of one command, or of all (NT_CMD_TRACE). */
void nt_options_help(FILE *out, enum nt_command command);
