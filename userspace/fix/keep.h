/* SPDX-License-Identifier: GPL-2.0 */
/*
 * `nagletrace fix --keep`, `--pin` and `--undo`: the remedy for programs that nobody can change. A
 * sockops program on a cgroup v2 sets TCP_NODELAY on each connection that is established in it, or
 * bounds how long its ACKs are delayed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "terms/settings.h"

/* Does this `fix` keep, undo or list something, and is no experiment? */
bool nt_fix_keeps(const struct nt_settings *settings);

/* Does it. Returns the exit code. */
enum nt_exit nt_fix_keep(const struct nt_settings *settings);

struct nt_kept {
	const char *option;   /* as setsockopt(2) names it */
	const char *cgroup;   /* its path in cgroup v2 */
	uint64_t connections; /* on which it was set so far */
	uint64_t limit_us;    /* of the delay of ACKs; 0: the option has no limit */
	bool pinned;
};

/*
 * Calls for each remedy that is kept now in a cgroup v2 that we see. Returns how many there are, or
 * -errno: -EPERM without CAP_NET_ADMIN and CAP_SYS_ADMIN.
 */
typedef void nt_kept_call(void *context, const struct nt_kept *kept);
int nt_fix_each_kept(nt_kept_call *call, void *context);

/* Prints a line. */
void nt_fix_print_kept(FILE *out, const struct nt_kept *kept);
