/* SPDX-License-Identifier: GPL-2.0 */
/* Who tells `nagletrace top`: the daemon, or, where none answers, a trace of its own. */
#ifndef NT_TOP_SOURCE_H
#define NT_TOP_SOURCE_H

#include "top_daemon.h"
#include "top_own.h"

struct nt_top_source {
	bool own;
	struct nt_top_daemon daemon;
	struct nt_top_own *trace; /* if own */
};

/*
 * Chooses and opens it; what it tells goes to *data. NT_EXIT_OK, or the exit code with one line in
 * err that says what to do. To be closed in either case.
 */
enum nt_exit nt_top_source_open(struct nt_top_source *source, const struct nt_options *opts,
				uint64_t interval_ns, struct nt_top_data *data, char *err,
				size_t err_size);
void nt_top_source_close(struct nt_top_source *source);

/* Readable when there is something; -1 where there is nothing to wait for. */
int nt_top_source_fd(const struct nt_top_source *source);

/* Reads if there is something to read, and does what it is time for. True: there is news. */
bool nt_top_source_turn(struct nt_top_source *source, bool readable, uint64_t now_ns);

/* When it wants its next turn at the latest. */
uint64_t nt_top_source_next_ns(const struct nt_top_source *source);

/* What is wrong just now; "" when all is well. */
const char *nt_top_source_trouble(const struct nt_top_source *source);

/* Not NT_EXIT_OK: it will never tell anything, for the reason in *err. */
enum nt_exit nt_top_source_failure(const struct nt_top_source *source, const char **err);

#endif /* NT_TOP_SOURCE_H */
