/* SPDX-License-Identifier: GPL-2.0 */
/* Gives up what a session no longer needs once it is attached. */
#pragma once

#include "capture/session.h"

/*
 * Gives up all capabilities but those that the session's options need to the end, and refuses the
 * system calls of refusals.h. Warns on stderr of each thing that the session cannot do for lack of
 * a capability. Writes the capabilities that stay into kept, as nt_privileges_drop() does. Returns
 * 0, or -errno if something cannot be given up.
 */
int nt_confine(struct nt_session *session, char *kept, size_t size);
