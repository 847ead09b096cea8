/* SPDX-License-Identifier: GPL-2.0 */
/* The source of the data of `nagletrace top`: the daemon, or a trace of its own if none answers. */
#pragma once

#include "base/error.h"
#include "top/remote.h"
#include "top/local.h"

struct nt_top_source {
	bool own;
	struct nt_top_daemon daemon;
	struct nt_top_own *trace; /* if own */
};

/* Chooses and opens the source, which fills *data; the loop reads what comes. The caller closes it
 * even if this returns false. */
bool nt_top_source_open(struct nt_top_source *source, const struct nt_settings *settings,
			struct nt_loop *loop, uint64_t interval_ns, struct nt_top_data *data,
			struct nt_error *error);
void nt_top_source_close(struct nt_top_source *source);

/* Does what is due after each turn of the loop. Returns true if there is news. */
bool nt_top_source_turn(struct nt_top_source *source, uint64_t now_ns);

/* Returns when it needs its next turn at the latest. */
uint64_t nt_top_source_next_ns(const struct nt_top_source *source);

/* Returns the current trouble; "" when all is well. */
const char *nt_top_source_trouble(const struct nt_top_source *source);

/* Returns the reason if no data will ever come; NULL: some may. */
const char *nt_top_source_failure(const struct nt_top_source *source);
