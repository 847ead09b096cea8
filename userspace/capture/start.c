// SPDX-License-Identifier: GPL-2.0
#include "capture/start.h"

#include <stdio.h>

#include "base/log.h"
#include "base/loop.h"
#include "capture/confine.h"

/* Reports which hooks are in use, and what is lost with the missing ones. */
static void print_hooks(const struct nt_tracer *tracer)
{
	nt_log("%s hooks%s%s%s", nt_family_name(tracer->family), tracer->why[0] ? " (" : "",
	       tracer->why, tracer->why[0] ? ")" : "");
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->missing[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			nt_log("%s %s is missing; lost with it: %s",
			       nt_attach_name(nt_hooks[i].how), nt_hooks[i].target,
			       nt_hooks[i].part);
}

enum nt_exit nt_session_start(struct nt_session *session, const struct nt_settings *settings,
			      const struct nt_start *start, char *err, size_t err_size)
{
	enum nt_exit code;
	char kept[128];

	nt_loop_signals_end_at_once();
	code = nt_session_open(session, settings, start->on_stall, start->context, err, err_size);
	if (!code && start->watch_signals)
		code = nt_cannot_start(start->watch_signals(start->context), err, err_size);
	if (!code)
		code = nt_cannot_start(nt_session_watch(session, start->loop, &start->watch), err,
				       err_size);
	if (!code && start->prepare)
		code = start->prepare(start->context, err, err_size);
	if (code)
		return code;
	if (start->announce && !settings->quiet)
		print_hooks(&session->tracer);
	code = nt_cannot_start(nt_confine(session, kept, sizeof(kept)), err, err_size);
	if (code || !start->announce)
		return code;
	start->announce(start->context, kept);
	fputs("nagletrace: ready\n", stderr);
	return NT_EXIT_OK;
}
