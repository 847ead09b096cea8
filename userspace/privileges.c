// SPDX-License-Identifier: GPL-2.0
#include "privileges.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>

/* Of the list, what the process has. */
static int held(const cap_value_t *list, int n, cap_value_t *have)
{
	cap_t now = cap_get_proc();
	cap_flag_value_t value;
	int count = 0;

	for (int i = 0; now && i < n; i++)
		if (!cap_get_flag(now, list[i], CAP_PERMITTED, &value) && value == CAP_SET)
			have[count++] = list[i];
	cap_free(now);
	return count;
}

/* These and no others, in the effective set; in the permitted one too if for good. */
static int set_to(const cap_value_t *list, int n, bool for_good)
{
	cap_t caps = for_good ? cap_init() : cap_get_proc();
	int err = 0;

	if (!caps)
		return -errno;
	if (cap_clear_flag(caps, CAP_EFFECTIVE) || cap_clear_flag(caps, CAP_INHERITABLE) ||
	    (n && cap_set_flag(caps, CAP_EFFECTIVE, n, list, CAP_SET)) ||
	    (n && for_good && cap_set_flag(caps, CAP_PERMITTED, n, list, CAP_SET)) ||
	    cap_set_proc(caps))
		err = -errno;
	cap_free(caps);
	return err;
}

/* No program that is executed gets any back. What a process without privileges may not do here
 * anyway, it need not. */
static void close_the_ways_back(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	cap_reset_ambient();
	for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++)
		cap_drop_bound(cap);
}

static void name_them(const cap_value_t *list, int n, char *kept, size_t size)
{
	snprintf(kept, size, "%s", n ? "" : "none");
	for (int i = 0; i < n; i++) {
		char *name = cap_to_name(list[i]);
		size_t at = strlen(kept);

		snprintf(kept + at, size - at, "%s%s", i ? "," : "", name ? name : "?");
		cap_free(name);
	}
}

int nt_privileges_drop(const struct nt_options *opts, bool (*works)(void *context), void *context,
		       char *kept, size_t size)
{
	static const cap_value_t for_stacks[] = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH};
	static const cap_value_t for_bpf[] = {CAP_BPF}, for_statistics[] = {CAP_SYS_ADMIN};
	cap_value_t keep[4];
	int n = opts->stacks ? held(for_stacks, 2, keep) : 0, err;

	if (opts->max_overhead_ppm)
		n += held(for_statistics, 1, keep + n);
	close_the_ways_back();
	err = set_to(keep, n, false);
	if (!err && !works(context))
		n += held(for_bpf, 1, keep + n);
	if (!err)
		err = set_to(keep, n, true);
	name_them(keep, n, kept, size);
	return err;
}
