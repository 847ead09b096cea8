// SPDX-License-Identifier: GPL-2.0
#include "sample/source.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/each_process.h"
#include "attach/kernel.h"
#include "capture/stall.h"

/* A look at all descriptors has at most this part of a CPU's time. */
#define REST_TIMES_COST 20
#define REST_AT_LEAST   (NT_SECOND_NS / 5)

/* ---- which way ---- */

static int try_iterator(struct nt_source *source, struct nt_error *error)
{
	struct nt_kernel kernel = {};
	int err;

	if (!nt_permission_check(error))
		return -EPERM;
	if (!nt_process_ids_are_the_hosts()) {
		nt_error_set(error, NT_EXIT_USAGE,
			     "this container has process ids of its own; start it with --pid=host");
		return -EOPNOTSUPP;
	}
	err = nt_by_iterator_open(&source->iterator, source->settings, false);
	if (!err)
		return 0;
	nt_by_iterator_close(&source->iterator);
	uname(&kernel.uname);
	nt_kernel_explain(&kernel, err, error->text, sizeof(error->text));
	return err;
}

bool nt_source_open(struct nt_source *source, const struct nt_settings *settings,
		    const struct nt_targets *targets, char *limits, size_t size,
		    struct nt_error *error)
{
	struct nt_error reason = {};
	int err, refused;

	memset(source, 0, sizeof(*source));
	source->settings = settings;
	source->targets = targets;
	limits[0] = '\0';
	refused = try_iterator(source, &reason);
	if (!refused) {
		source->kind = NT_SOURCE_ITERATOR;
		return true;
	}
	err = nt_by_diag_open(&source->diag);
	if (err) {
		nt_by_diag_close(&source->diag);
		return nt_error_set(error, NT_EXIT_KERNEL,
				    "neither a BPF iterator (%.400s) nor sock_diag (%s) shows "
				    "sockets",
				    reason.text, strerror(-err));
	}
	source->kind = NT_SOURCE_SOCK_DIAG;
	if (settings->netns && settings->netns != source->diag.netns)
		return nt_error_set(error, refused == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL,
				    "--netns: sock_diag shows only our own network namespace, and "
				    "a BPF iterator cannot be had: %.400s",
				    reason.text);
	snprintf(limits, size,
		 "by sock_diag (%s): this network namespace only, other users' processes unnamed, "
		 "TCP_NODELAY and TCP_CORK unknown",
		 reason.text);
	return true;
}

void nt_source_close(struct nt_source *source)
{
	if (source->kind == NT_SOURCE_ITERATOR)
		nt_by_iterator_close(&source->iterator);
	else if (source->kind == NT_SOURCE_SOCK_DIAG)
		nt_by_diag_close(&source->diag);
	source->kind = NT_SOURCE_NONE;
}

const char *nt_source_word(enum nt_source_kind kind)
{
	return kind == NT_SOURCE_ITERATOR ? "iterator" : "sock_diag";
}

/* ---- a look ---- */

/* Can it be what the user wants to know: a hold that Nagle or the application chose? */
static bool reason_matches(const struct nt_settings *settings, unsigned int reason)
{
	return settings->all_holds || reason == NT_HOLD_NAGLE || reason == NT_HOLD_CORK ||
	       reason == NT_HOLD_MSG_MORE || reason == NT_HOLD_UNKNOWN;
}

struct filtering {
	const struct nt_settings *settings;
	nt_sampled_take *take;
	void *context;
};

static void filter(void *context, const struct nt_sampled *sampled)
{
	const struct filtering *filtering = context;

	if (nt_tuple_wanted(filtering->settings, &sampled->end.tuple) &&
	    reason_matches(filtering->settings, sampled->reason))
		filtering->take(filtering->context, sampled);
}

int nt_source_look(struct nt_source *source, nt_sampled_take *take, void *context)
{
	struct filtering filtering = {source->settings, take, context};

	if (source->kind == NT_SOURCE_ITERATOR)
		return nt_by_iterator_look(&source->iterator, filter, &filtering);
	return nt_by_diag_look(&source->diag, filter, &filtering);
}

/* ---- whose sockets ---- */

/* Is it one of the processes that the user asked for, or a descendant of one? */
static bool asked_for(const struct nt_targets *targets, pid_t tgid)
{
	if (!nt_targets_any(targets) || nt_targets_match(targets, tgid))
		return true;
	if (!targets->settings->n_pids)
		return false;
	for (int depth = 0; depth < 64 && tgid > 1; depth++) {
		tgid = nt_process_parent(tgid);
		if (tgid && nt_targets_match(targets, tgid))
			return true;
	}
	return false;
}

static bool wanted(void *context, uint32_t tgid)
{
	const struct nt_source *source = context;

	return nt_targets_any(source->targets) && asked_for(source->targets, tgid);
}

static bool lacks_name(const struct nt_seen *seen)
{
	return !seen->process.tgid && seen->wanted != NT_WANTED_NO && !seen->nameless;
}

bool nt_source_must_name(const struct nt_source *source, const struct nt_estimate *estimate)
{
	const struct nt_seen *seen;

	if (nt_now_ns() < source->rest_until_ns)
		return false;
	for (seen = estimate->seen; seen; seen = seen->hh.next)
		if (lacks_name(seen))
			return true;
	return false;
}

int nt_source_scan(struct nt_source *source)
{
	uint64_t began = nt_cpu_ns(), rest;
	int err;

	if (source->kind == NT_SOURCE_ITERATOR)
		err = nt_by_iterator_scan(&source->iterator, wanted, source);
	else
		err = nt_by_diag_scan(&source->diag);
	rest = REST_TIMES_COST * (nt_cpu_ns() - began);
	source->rest_until_ns = nt_now_ns() + (rest > REST_AT_LEAST ? rest : REST_AT_LEAST);
	return err;
}

/* Names the first of its processes that was asked for, or else the last one. */
static void name(const struct nt_source *source, struct nt_seen *seen)
{
	const struct nt_inode_owner *owners = NULL;
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	size_t count;

	if (source->kind == NT_SOURCE_ITERATOR)
		count = nt_owner_list_find(&source->iterator.owners, &seen->last.end, found);
	else
		owners = nt_by_diag_owners(&source->diag, seen->last.inode, &count);
	for (size_t i = 0; i < count; i++) {
		pid_t tgid = owners ? owners[i].tgid : found[i].tgid;
		bool last = i + 1 == count, asked;

		/* sock_diag has a process for each of its descriptors, in a row */
		if (owners && !last && (pid_t)owners[i + 1].tgid == tgid)
			continue;
		asked = asked_for(source->targets, tgid);
		if (!asked && !last)
			continue;
		nt_process_read(tgid, &seen->process);
		seen->wanted = asked ? NT_WANTED_YES : NT_WANTED_NO;
		return;
	}
	/* it was gone before we looked, or belongs to a process that we may not see */
	seen->nameless = true;
	seen->wanted = nt_targets_any(source->targets) ? NT_WANTED_NO : NT_WANTED_YES;
}

void nt_source_name(const struct nt_source *source, struct nt_estimate *estimate)
{
	struct nt_seen *seen;

	for (seen = estimate->seen; seen; seen = seen->hh.next)
		if (lacks_name(seen))
			name(source, seen);
}
