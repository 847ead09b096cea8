/* SPDX-License-Identifier: GPL-2.0 */
/* The source of the data of `nagletrace top`: the daemon, or a trace of its own if none answers. */
#ifndef NT_TOP_SOURCE_H
#define NT_TOP_SOURCE_H

#include "top/remote.h"
#include "top/local.h"

struct nt_top_source {
	bool own;
	struct nt_top_daemon daemon;
	struct nt_top_own *trace; /* if own */
};

/* Chooses and opens the source, which fills *data; the loop reads what comes. Returns NT_EXIT_OK,
 * or the exit code with one line in err that gives the remedy. The caller closes it in either case.
 */
enum nt_exit nt_top_source_open(struct nt_top_source *source, const struct nt_settings *settings,
				struct nt_loop *loop, uint64_t interval_ns,
				struct nt_top_data *data, char *err, size_t err_size);
void nt_top_source_close(struct nt_top_source *source);

/* Does what is due after each turn of the loop. Returns true if there is news. */
bool nt_top_source_turn(struct nt_top_source *source, uint64_t now_ns);

/* Returns when it needs its next turn at the latest. */
uint64_t nt_top_source_next_ns(const struct nt_top_source *source);

/* Returns the current trouble; "" when all is well. */
const char *nt_top_source_trouble(const struct nt_top_source *source);

/* Returns another code than NT_EXIT_OK if no data will ever come, for the reason in *err. */
enum nt_exit nt_top_source_failure(const struct nt_top_source *source, const char **err);

#endif /* NT_TOP_SOURCE_H */
