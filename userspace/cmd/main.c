// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "cmd/check.h"
#include "daemon/daemon.h"
#include "fix/fix.h"
#include "cmd/options.h"
#include "output/schema.h"
#include "cmd/show_report.h"
#include "sample/sample.h"
#include "top/top.h"
#include "cmd/trace.h"
#include "version.h"

int main(int argc, char **argv)
{
	struct nt_settings settings;
	enum nt_command command;
	char err[512];
	int cause = nt_options_parse(argc, argv, &command, &settings, err, sizeof(err));

	nt_streams_open();
	if (cause) {
		nt_log("%s", err);
		return cause == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_USAGE;
	}
	switch (command) {
	case NT_CMD_HELP:
		nt_options_help(stdout, settings.help_of);
		return nt_streams_written(nt_flush(stdout));
	case NT_CMD_VERSION:
		puts("nagletrace " NT_VERSION);
		return nt_streams_written(nt_flush(stdout));
	case NT_CMD_JSON_SCHEMA:
		fwrite(nt_schema, 1, nt_schema_end - nt_schema, stdout);
		return nt_streams_written(nt_flush(stdout));
	case NT_CMD_DAEMON:
		return nt_daemon(&settings);
	case NT_CMD_REPORT:
		return nt_show_report(&settings);
	case NT_CMD_TOP:
		return nt_top(&settings);
	case NT_CMD_FIX:
		return nt_fix(&settings);
	case NT_CMD_SAMPLE:
		return nt_sample(&settings);
	case NT_CMD_CHECK:
		return nt_check(&settings);
	case NT_CMD_TRACE:
		return nt_trace(&settings);
	}
	return NT_EXIT_USAGE;
}
