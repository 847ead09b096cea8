/* SPDX-License-Identifier: GPL-2.0 */
/* Reads the daemon's snapshots and stalls (docs/protocol.md) into the data of `nagletrace top`. */
#pragma once

#include <json-c/json.h>
#include "top/data.h"

enum nt_top_fed {
	NT_TOP_FED_OTHER, /* the line holds nothing that is shown */
	NT_TOP_FED_SNAPSHOT,
	NT_TOP_FED_STALL,
	NT_TOP_FED_WRONG, /* err says why */
};

/* Takes an object of the daemon's protocol. No content does harm: an unknown key or one of another
 * type counts as absent. */
enum nt_top_fed nt_top_feed(struct nt_top_data *data, struct json_object *o, uint64_t now_ns);

/* Takes one line of the daemon, with a NUL after its length bytes; it changes the line. */
enum nt_top_fed nt_top_feed_line(struct nt_top_data *data, char *line, size_t length,
				 uint64_t now_ns, char *err, size_t err_size);
