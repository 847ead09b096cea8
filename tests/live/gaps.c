// SPDX-License-Identifier: GPL-2.0
/*
 * build/nagletrace-gaps: the tracer on a kernel that lacks hooks. It is linked with this in the
 * place of userspace/attach/hooks.c. A hook named in $NAGLETRACE_GAPS, names with commas, has
 * another target, which no kernel has.
 */
#define nt_hooks the_hooks
#include "attach/hooks.c"
#undef nt_hooks

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nt_hook nt_hooks[NT_MAX_HOOKS];

static void take_away(const char **target, const char *name)
{
	static char gone[NT_MAX_HOOKS * 2][64];
	static size_t n;

	if (!*target || strcmp(*target, name))
		return;
	snprintf(gone[n], sizeof(gone[n]), "%s_gone", name);
	*target = gone[n++];
}

__attribute__((constructor)) static void make_gaps(void)
{
	const char *given = getenv("NAGLETRACE_GAPS");
	char *rest = given ? strdup(given) : NULL, *name;

	memcpy(nt_hooks, the_hooks, sizeof(the_hooks));
	while ((name = strsep(&rest, ","))) {
		for (size_t i = 0; i < nt_n_hooks; i++) {
			take_away(&nt_hooks[i].target, name);
			take_away(&nt_hooks[i].alternative, name);
		}
	}
}
