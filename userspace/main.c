// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "daemon.h"
#include "fix.h"
#include "options.h"
#include "schema.h"
#include "show_report.h"
#include "top.h"
#include "trace.h"
#include "version.h"

int main(int argc, char **argv)
{
	struct nt_options opts;
	char err[512];
	int cause = nt_options_parse(argc, argv, &opts, err, sizeof(err));

	if (cause) {
		fprintf(stderr, "nagletrace: %s\n", err);
		return cause == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_USAGE;
	}
	switch (opts.command) {
	case NT_CMD_HELP:
		nt_options_help(stdout);
		return fflush(stdout) ? NT_EXIT_FAILED : NT_EXIT_OK;
	case NT_CMD_VERSION:
		puts("nagletrace " NT_VERSION);
		return NT_EXIT_OK;
	case NT_CMD_JSON_SCHEMA:
		fwrite(nt_schema, 1, nt_schema_end - nt_schema, stdout);
		return fflush(stdout) ? NT_EXIT_FAILED : NT_EXIT_OK;
	case NT_CMD_DAEMON:
		return nt_daemon(&opts);
	case NT_CMD_REPORT:
		return nt_show_report(&opts);
	case NT_CMD_TOP:
		return nt_top(&opts);
	case NT_CMD_FIX:
		return nt_fix(&opts);
	case NT_CMD_CHECK:
		return nt_check(&opts);
	case NT_CMD_TRACE:
		return nt_trace(&opts);
	}
	return NT_EXIT_USAGE;
}
