/* SPDX-License-Identifier: GPL-2.0 */
/* Tracing by `nagletrace top` itself, where no daemon tells. */
#ifndef NT_TOP_OWN_H
#define NT_TOP_OWN_H

#include "session.h"
#include "top_data.h"
#include "window.h"

struct nt_top_own {
	struct nt_session session;
	struct nt_top_data *data;
	struct nt_window window;
	uint64_t interval_ns, started_ns, next_ns, turn_ns;
	uint64_t stalls, lost_ns;
	unsigned int processes_left; /* of those named by --pid */
	char trouble[128];
};

/* Attaches. NT_EXIT_OK, or the exit code with one line in err; to be closed in either case. */
enum nt_exit nt_top_own_open(struct nt_top_own *own, const struct nt_options *opts,
			     uint64_t interval_ns, struct nt_top_data *data, char *err,
			     size_t err_size);
void nt_top_own_close(struct nt_top_own *own);

/* Takes records, for some 20 ms at most. */
void nt_top_own_read(struct nt_top_own *own);

/* Tells how things are, when it is time. True: there is something new to show. */
bool nt_top_own_turn(struct nt_top_own *own, uint64_t now_ns);

#endif /* NT_TOP_OWN_H */
