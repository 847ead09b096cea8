/* SPDX-License-Identifier: GPL-2.0 */
/* Handles signals while sockets of others are changed: no signal that can be caught leaves
 * them so. */
#pragma once

#include "base/loop.h"
#include "fix/sockets.h"

/*
 * Has the loop call once a signal came that would end or stop the program. Returns 0 or -errno.
 * Stop signals (Ctrl-Z) are among them, since a stopped program sets nothing back. Signals that
 * would do nothing are left alone.
 */
int nt_fix_watch_signals(struct nt_loop *loop, nt_loop_call *call, void *context);

/* From now on a crash signal sets these sockets back before it ends the program. Its handler cannot
 * wait, so it reaches them only at their last places, not those that have moved since. */
void nt_fix_catch_crashes(struct nt_fix_sockets *sockets);
