/* SPDX-License-Identifier: GPL-2.0 */
/* Looks at sockets in the better of two ways, and finds the processes that hold them. */
#pragma once

#include "base/error.h"
#include "capture/processes.h"
#include "sample/by_diag.h"
#include "sample/by_iterator.h"
#include "sample/estimate.h"

enum nt_source_kind {
	NT_SOURCE_NONE = 0,
	NT_SOURCE_ITERATOR,
	NT_SOURCE_SOCK_DIAG, /* without privilege: our own network namespace only */
};

struct nt_source {
	enum nt_source_kind kind;
	const struct nt_settings *settings;
	const struct nt_targets *targets;
	struct nt_by_iterator iterator;
	struct nt_by_diag diag;
	uint64_t rest_until_ns; /* no look for owners before that time */
};

/*
 * Opens the iterator where we may and this kernel can; else sock_diag, and writes into limits, for
 * one line on stderr, why and what it does not show ("" for the iterator). Close it even if this
 * returns false.
 */
bool nt_source_open(struct nt_source *source, const struct nt_settings *settings,
		    const struct nt_targets *targets, char *limits, size_t size,
		    struct nt_error *error);
void nt_source_close(struct nt_source *source);

/* Returns "iterator" or "sock_diag". */
const char *nt_source_word(enum nt_source_kind kind);

/* Calls take for each socket that holds bytes back and that the options choose; by process they
 * choose later, with nt_source_name(). Returns 0 or -errno. */
int nt_source_look(struct nt_source *source, nt_sampled_take *take, void *context);

/* Are there connections in the estimate without a process, and is it time to look for them? */
bool nt_source_must_name(const struct nt_source *source, const struct nt_estimate *estimate);

/* The first looks at all descriptors, and returns 0 or -errno; after 0 the second names the
 * processes of an estimate by that look, and decides which of its connections the user asked
 * for. */
int nt_source_scan(struct nt_source *source);
void nt_source_name(const struct nt_source *source, struct nt_estimate *estimate);
