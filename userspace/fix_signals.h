/* SPDX-License-Identifier: GPL-2.0 */
/* Signals while sockets of others are changed: none that can be waited for leaves them so. */
#ifndef NT_FIX_SIGNALS_H
#define NT_FIX_SIGNALS_H

#include "fix_sockets.h"

/*
 * All signals that would end or stop the program and can be waited for: a descriptor that is
 * readable once one came, or -errno. One that stops it, as Ctrl-Z, is among them, for what is
 * stopped sets nothing back. Those that would do nothing are left alone.
 */
int nt_fix_watch_signals(void);

/*
 * From now on those of a crash, which cannot wait, set these back before they end the program:
 * where they were last, not those that have moved since.
 */
void nt_fix_catch_crashes(struct nt_fix_sockets *sockets);

#endif /* NT_FIX_SIGNALS_H */
