/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace top` traces by itself where no daemon answers. */
#pragma once

#include "base/error.h"
#include "capture/session.h"
#include "top/data.h"
#include "summary/window.h"

struct nt_top_own {
	struct nt_session session;
	struct nt_top_data *data;
	struct nt_window window;
	uint64_t interval_ns, started_ns, next_ns, turn_ns;
	uint64_t stalls, excess_ns;
	char trouble[128];
};

/* Attaches; the loop takes the records. The caller closes it even if this returns false. */
bool nt_top_own_open(struct nt_top_own *own, const struct nt_settings *settings,
		     struct nt_loop *loop, uint64_t interval_ns, struct nt_top_data *data,
		     struct nt_error *error);
void nt_top_own_close(struct nt_top_own *own);

/* Updates the data when it is time. Returns true if there is something new to show. */
bool nt_top_own_turn(struct nt_top_own *own, uint64_t now_ns);
