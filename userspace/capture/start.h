/* SPDX-License-Identifier: GPL-2.0 */
/* Starts a session, from nothing to ready, in the same way for each command that traces. */
#pragma once

#include "base/error.h"
#include "capture/session.h"

/* The steps that a command adds; each gets context. */
struct nt_start {
	struct nt_loop *loop; /* serves the session */
	void (*on_stall)(void *context, const struct nt_stall *stall);
	struct nt_session_watch watch;

	/*
	 * Has the loop take the signals that end the command, before it serves the session: until
	 * then, SIGINT and SIGTERM end the process at once. Returns 0 or -errno. NULL: prepare
	 * does it, or the caller afterwards.
	 */
	int (*watch_signals)(void *context);

	/*
	 * Runs when the session is attached, but not confined yet: the last time to open anything
	 * that takes privileges. NULL: there is nothing to do.
	 */
	bool (*prepare)(void *context, struct nt_error *error);

	/*
	 * Runs when the session is confined: writes what comes before "ready". kept: the
	 * capabilities that are left, as nt_confine() writes them. NULL: neither hooks nor "ready"
	 * are reported, since a screen shows when it is ready.
	 */
	void (*announce)(void *context, const char *kept);
	void *context;
};

/*
 * Opens the session, has the command prepare, reports on stderr which hooks are in use, confines
 * the process, and writes "ready". The caller closes the session even if this returns false.
 */
bool nt_session_start(struct nt_session *session, const struct nt_settings *settings,
		      const struct nt_start *start, struct nt_error *error);
