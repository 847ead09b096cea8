// SPDX-License-Identifier: GPL-2.0
#include "top/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "capture/start.h"
#include "output/json.h"
#include "top/feed.h"

static void on_stall(void *context, const struct nt_stall *stall)
{
	struct nt_top_own *own = context;

	if (!stall->is_stall)
		return;
	own->stalls++;
	own->excess_ns += stall->excess_ns;
	nt_window_add(&own->window, stall);
}

/* The numbers of these processes no longer name them. */
static void on_all_ended(void *context)
{
	struct nt_top_own *own = context;

	snprintf(own->trouble, sizeof(own->trouble),
		 own->session.settings->n_pids == 1
			 ? "the process has ended; what it lost is shown"
			 : "all processes have ended; what they lost is shown");
}

bool nt_top_own_open(struct nt_top_own *own, const struct nt_settings *settings,
		     struct nt_loop *loop, uint64_t interval_ns, struct nt_top_data *data,
		     struct nt_error *error)
{
	const struct nt_start start = {
		.loop = loop,
		.on_stall = on_stall,
		.watch = {.on_all_ended = on_all_ended},
		.context = own,
	};
	struct nt_counts counts;

	memset(own, 0, sizeof(*own));
	own->data = data;
	own->interval_ns = interval_ns;
	if (!nt_session_start(&own->session, settings, &start, error))
		return false;
	own->started_ns = own->next_ns = nt_now_ns();
	own->turn_ns = own->started_ns + settings->window_ns / 2;
	nt_session_counts(&own->session, &counts);
	nt_window_init(&own->window, settings->max_connections, own->started_ns, &counts);
	return true;
}

void nt_top_own_close(struct nt_top_own *own)
{
	nt_session_close(&own->session);
	nt_window_clear(&own->window);
}

/* ---- what was traced, as a daemon would tell it ---- */

static void feed(struct nt_top_own *own, struct json_object *o, uint64_t now_ns)
{
	nt_top_feed(own->data, o, now_ns);
	json_object_put(o);
}

static void feed_snapshot(struct nt_top_own *own, struct json_object *connections,
			  uint64_t began_ns, uint64_t now_ns)
{
	const struct nt_session *session = &own->session;
	struct json_object *o = nt_json_new("snapshot");
	struct nt_counts counts;
	struct utsname name;

	uname(&name);
	nt_session_counts(&own->session, &counts);
	nt_json_string(o, "kernel", name.release);
	nt_json_hooks(o, &session->tracer.hooks);
	nt_json_number(o, "uptime_us", (now_ns - own->started_ns) / 1000);
	nt_json_number(o, "stalls", own->stalls);
	nt_json_number(o, "excess_us", own->excess_ns / 1000);
	nt_json_totals(o, &counts);
	nt_json_dropped(o, &counts);
	json_object_object_add(o, "connections", connections);
	nt_json_number(o, "connections_span_us", (now_ns - began_ns) / 1000);
	feed(own, o, now_ns);
}

/* Updates the data by a snapshot, and by the last stall of each connection. */
static void report(struct nt_top_own *own, uint64_t now_ns)
{
	struct json_object *connections = json_object_new_array();
	struct nt_connection **sorted;
	struct nt_window_half recent;
	size_t n;

	nt_window_sum(&own->window, &recent);
	sorted = nt_aggregate_costly(&recent.stalls);
	n = sorted ? nt_aggregate_count(&recent.stalls) : 0;
	if (n > NT_TOP_ROWS)
		n = NT_TOP_ROWS;
	for (size_t i = 0; i < n; i++)
		json_object_array_add(connections,
				      nt_json_connection(sorted[i], own->session.stacks));
	feed_snapshot(own, connections, recent.began_ns, now_ns);
	for (size_t i = 0; i < n; i++)
		feed(own, nt_json_stall(&sorted[i]->last, NULL), now_ns);
	free(sorted);
	nt_aggregate_clear(&recent.stalls);
}

bool nt_top_own_turn(struct nt_top_own *own, uint64_t now_ns)
{
	struct nt_counts counts;

	if (now_ns < own->next_ns)
		return false;
	own->next_ns = now_ns + own->interval_ns;
	nt_session_dropped_more(&own->session, &counts); /* makes room for stacks */
	if (now_ns >= own->turn_ns) {
		nt_session_counts(&own->session, &counts);
		nt_window_turn(&own->window, now_ns, &counts);
		own->turn_ns = now_ns + own->session.settings->window_ns / 2;
		if (own->session.stacks)
			nt_stacks_recycle(own->session.stacks, false);
	}
	report(own, now_ns);
	return true;
}
