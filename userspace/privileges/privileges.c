// SPDX-License-Identifier: GPL-2.0
#include "privileges/privileges.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* The capabilities that the process keeps. */
struct remains {
	cap_value_t list[16];
	size_t n;
};

bool nt_privileges_has(cap_flag_t set, cap_value_t cap)
{
	cap_t now = cap_get_proc();
	cap_flag_value_t value = CAP_CLEAR;

	if (now && cap_get_flag(now, cap, set, &value))
		value = CAP_CLEAR;
	cap_free(now);
	return value == CAP_SET;
}

/* Reduces the effective set to these capabilities; if for_good, the permitted set too. */
static int set_to(const struct remains *remains, bool for_good)
{
	cap_t caps = for_good ? cap_init() : cap_get_proc();
	const cap_value_t *list = remains->list;
	int err = 0, n = remains->n;

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

/*
 * Makes sure that no program we execute gets a capability back. Errors do not matter: a process
 * that lacks the privilege for one of these steps does not need the step.
 */
static void close_the_ways_back(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	cap_reset_ambient();
	for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++)
		cap_drop_bound(cap);
}

/* Adds the first capability that makes this work; none, if none does. */
static int add_what_it_takes(struct remains *remains, const struct nt_must_work *must,
			     void *context)
{
	int err = set_to(remains, false);

	for (size_t i = 0; !err && i < must->n_takes && !must->works(context); i++) {
		if (!nt_privileges_has(CAP_PERMITTED, must->takes[i]))
			continue;
		remains->list[remains->n++] = must->takes[i];
		err = set_to(remains, false);
		if (!err && !must->works(context))
			remains->n--;
	}
	return err;
}

static void name_them(const struct remains *remains, char *kept, size_t size)
{
	snprintf(kept, size, "%s", remains->n ? "" : "none");
	for (size_t i = 0; i < remains->n; i++) {
		char *name = cap_to_name(remains->list[i]);
		size_t at = strlen(kept);

		snprintf(kept + at, size - at, "%s%s", i ? "," : "", name ? name : "?");
		cap_free(name);
	}
}

int nt_privileges_drop(const cap_value_t *keep, size_t n_keep, const struct nt_must_work *must,
		       size_t n_must, void *context, char *kept, size_t size)
{
	struct remains remains = {};
	int err = 0;

	for (size_t i = 0; i < n_keep; i++)
		if (nt_privileges_has(CAP_PERMITTED, keep[i]))
			remains.list[remains.n++] = keep[i];
	close_the_ways_back();
	for (size_t i = 0; !err && i < n_must; i++)
		err = add_what_it_takes(&remains, &must[i], context);
	if (!err)
		err = set_to(&remains, true);
	if (kept)
		name_them(&remains, kept, size);
	return err;
}
