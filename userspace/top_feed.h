/* SPDX-License-Identifier: GPL-2.0 */
/* Reads the daemon's snapshots and stalls (docs/protocol.md) into what `nagletrace top` shows. */
#ifndef NT_TOP_FEED_H
#define NT_TOP_FEED_H

#include <json-c/json.h>
#include "top_data.h"

enum nt_top_fed {
	NT_TOP_FED_OTHER, /* nothing that is shown */
	NT_TOP_FED_SNAPSHOT,
	NT_TOP_FED_STALL,
	NT_TOP_FED_WRONG, /* err says why */
};

/*
 * Takes one line of the daemon, or an object of our own like it. Whatever it holds does no harm:
 * keys that are not known or of another type count as absent.
 */
enum nt_top_fed nt_top_feed(struct nt_top_data *data, struct json_object *o, uint64_t now_ns,
			    char *err, size_t err_size);
enum nt_top_fed nt_top_feed_line(struct nt_top_data *data, const char *line, size_t length,
				 uint64_t now_ns, char *err, size_t err_size);

#endif /* NT_TOP_FEED_H */
