// SPDX-License-Identifier: GPL-2.0
// links: userspace/options.c userspace/options_table.c userspace/numbers.c userspace/text.c
/* The command line, an argument a line: taken within its bounds, or refused in one line. */
#include <errno.h>
#include <string.h>
#include "fuzz.h"
#include "options.h"

#define MAX_ARGS 64

static void check_taken(const struct nt_options *o)
{
	FUZZ_CHECK(o->command <= NT_CMD_JSON_SCHEMA);
	if (o->command >= NT_CMD_HELP)
		return; /* whatever else stands there */
	FUZZ_CHECK(o->hooks <= NT_HOOKS_TRACEPOINT && o->output <= NT_OUTPUT_JSON);
	FUZZ_CHECK(o->n_pids <= NT_MAX_PIDS);
	for (unsigned int i = 0; i < o->n_pids; i++)
		FUZZ_CHECK(o->pids[i] > 0);
	FUZZ_CHECK(memchr(o->name, '\0', sizeof(o->name)));
	FUZZ_CHECK(o->ports.count <= NT_MAX_PORTS && o->local_ports.count <= NT_MAX_PORTS &&
		   o->remote_ports.count <= NT_MAX_PORTS);
	FUZZ_CHECK(!(o->only_v4 && o->only_v6));
	if (o->command == NT_CMD_FIX)
		FUZZ_CHECK(o->nodelay != o->quickack && o->for_ns &&
			   (o->n_pids || o->name[0] || o->cgroup));
	if (o->command == NT_CMD_DAEMON || o->command == NT_CMD_REPORT)
		FUZZ_CHECK(o->socket && *o->socket);
	if (o->command == NT_CMD_DAEMON)
		FUZZ_CHECK(o->window_ns && o->max_series && o->max_connections);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = malloc(size + 1), *rest = copy, *word, *argv[MAX_ARGS + 1] = {"nagletrace"};
	char err[NT_OPTION_ERROR_LEN] = "";
	struct nt_options opts;
	int argc = 1, result;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	while ((word = strsep(&rest, "\n")) && argc < MAX_ARGS)
		argv[argc++] = word;
	result = nt_options_parse(argc, argv, &opts, err, sizeof(err));
	FUZZ_CHECK(!result || result == -EINVAL || result == -EPERM);
	if (result)
		fuzz_check_message(err);
	else
		check_taken(&opts);
	free(copy);
	return 0;
}
