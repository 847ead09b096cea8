// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "cmd/commands.h"
#include "daemon/daemon.h"
#include "fix/fix.h"
#include "cmd/options.h"
#include "cmd/options_table.h"
#include "output/schema.h"
#include "sample/sample.h"
#include "top/top.h"
#include "cmd/workload.h"
#include "version.h"

/*
 * Makes stdout what --output-file names; beside a workload, whose stdout it is, stderr. Starts the
 * workload before, so that it has the streams that we were given.
 */
static bool direct_output(struct nt_settings *settings, struct nt_error *error)
{
	const char *path = settings->output_file;
	char shown[NT_SHOWN_LEN];
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : STDERR_FILENO;

	if (path && fd < 0) {
		nt_show(path, strlen(path), shown);
		return nt_error_set(error, NT_EXIT_USAGE,
				    "--output-file %s: cannot write it: %s; give a path that you "
				    "may write",
				    shown, strerror(errno));
	}
	if (settings->workload && !nt_workload_prepare(settings, error))
		return false;
	return nt_started(fd >= 0 && dup2(fd, STDOUT_FILENO) < 0 ? -errno : 0, error);
}

int main(int argc, char **argv)
{
	struct nt_settings settings;
	enum nt_command command;
	struct nt_error error;
	char err[512];
	int cause = nt_options_parse(argc, argv, &command, &settings, err, sizeof(err));

	if (!cause && command == NT_CMD_TRACE && (settings.workload || settings.output_file) &&
	    !direct_output(&settings, &error))
		return nt_error_log(&error);
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
