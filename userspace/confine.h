/* SPDX-License-Identifier: GPL-2.0 */
/* What a session needs no longer once it is attached, given up. */
#ifndef NT_CONFINE_H
#define NT_CONFINE_H

#include "session.h"

/*
 * Gives up all capabilities but those that the session's options use to the end, and refuses the
 * system calls of refusals.h. Says on stderr what the session goes without for lack of a
 * capability. Writes what is kept into kept, as nt_privileges_drop() does. 0, or -errno where
 * something cannot be given up.
 */
int nt_confine(struct nt_session *session, char *kept, size_t size);

#endif /* NT_CONFINE_H */
