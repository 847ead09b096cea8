// SPDX-License-Identifier: GPL-2.0
#include "top_own.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "clock.h"
#include "confine.h"
#include "json_parts.h"
#include "json_stall.h"
#include "request.h"
#include "top_feed.h"

static void on_stall(void *context, const struct nt_stall *stall)
{
	struct nt_top_own *own = context;

	if (!stall->is_stall)
		return;
	own->stalls++;
	own->lost_ns += stall->excess_ns;
	nt_window_add(&own->window, stall);
}

enum nt_exit nt_top_own_open(struct nt_top_own *own, const struct nt_options *opts,
			     uint64_t interval_ns, struct nt_top_data *data, char *err,
			     size_t err_size)
{
	struct nt_counts counts;
	enum nt_exit code;
	char kept[128];
	int cause;

	memset(own, 0, sizeof(*own));
	own->data = data;
	own->interval_ns = interval_ns;
	own->processes_left = opts->n_pids;
	code = nt_session_open(&own->session, opts, on_stall, own, err, err_size);
	if (code)
		return code;
	cause = nt_confine(&own->session, kept, sizeof(kept));
	if (cause) {
		snprintf(err, err_size, "cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	own->started_ns = own->next_ns = nt_now_ns();
	own->turn_ns = own->started_ns + opts->window_ns / 2;
	nt_session_counts(&own->session, &counts);
	nt_window_init(&own->window, opts->max_connections, own->started_ns, &counts);
	return NT_EXIT_OK;
}

void nt_top_own_close(struct nt_top_own *own)
{
	nt_session_close(&own->session);
	nt_window_clear(&own->window);
}

void nt_top_own_read(struct nt_top_own *own)
{
	nt_session_consume(&own->session);
}

/* A process that has ended has its number no longer. */
static void look_at_processes(struct nt_top_own *own)
{
	struct nt_targets *targets = &own->session.targets;

	for (unsigned int i = 0; i < own->session.opts->n_pids; i++) {
		struct pollfd ended = {.fd = targets->pidfds[i], .events = POLLIN};

		if (ended.fd < 0 || poll(&ended, 1, 0) <= 0)
			continue;
		nt_session_drain(&own->session); /* what was its own while it lived */
		nt_targets_ended(targets, i);
		if (--own->processes_left == 0)
			snprintf(own->trouble, sizeof(own->trouble),
				 own->session.opts->n_pids == 1
					 ? "the process has ended; what it lost is shown"
					 : "all processes have ended; what they lost is shown");
	}
}

static void add_identity(struct json_object *o, const struct nt_top_own *own, uint64_t now_ns)
{
	const struct nt_tracer *tracer = &own->session.tracer;
	struct utsname name;

	uname(&name);
	nt_json_number(o, "protocol", NT_PROTOCOL);
	nt_json_number(o, "uptime_us", (now_ns - own->started_ns) / 1000);
	nt_json_string(o, "kernel", name.release);
	nt_json_string(o, "hooks", nt_family_name(tracer->family));
	nt_json_hooks(o, "missing_hooks", tracer->missing);
}

/* The same that a daemon would tell: a snapshot, then the last stall of each connection. */
static void tell(struct nt_top_own *own, uint64_t now_ns)
{
	const struct nt_window_half *recent = nt_window_older(&own->window);
	struct nt_connection **sorted = nt_aggregate_sorted(&recent->stalls);
	size_t n = sorted ? nt_aggregate_count(&recent->stalls) : 0;
	struct json_object *o = nt_json_new("snapshot"), *list = json_object_new_array();
	struct nt_stacks *stacks = own->session.stacks;
	struct nt_counts counts;
	char err[128];

	if (n > NT_TOP_ROWS)
		n = NT_TOP_ROWS;
	nt_session_counts(&own->session, &counts);
	add_identity(o, own, now_ns);
	nt_json_number(o, "stalls", own->stalls);
	nt_json_number(o, "lost_us", own->lost_ns / 1000);
	nt_json_totals(o, &counts.totals);
	nt_json_lost_counts(o, &counts);
	for (size_t i = 0; i < n; i++)
		json_object_array_add(list, nt_json_connection(sorted[i], stacks));
	json_object_object_add(o, "connections", list);
	nt_json_number(o, "connections_span_us", (now_ns - recent->began_ns) / 1000);
	nt_top_feed(own->data, o, now_ns, err, sizeof(err));
	json_object_put(o);
	for (size_t i = 0; i < n; i++) {
		o = nt_json_stall_record(&sorted[i]->last, stacks);
		nt_top_feed(own->data, o, now_ns, err, sizeof(err));
		json_object_put(o);
	}
	free(sorted);
}

bool nt_top_own_turn(struct nt_top_own *own, uint64_t now_ns)
{
	struct nt_counts counts;

	if (now_ns < own->next_ns)
		return false;
	own->next_ns = now_ns + own->interval_ns;
	look_at_processes(own);
	nt_session_lost_more(&own->session, &counts); /* makes room for stacks */
	if (now_ns >= own->turn_ns) {
		nt_session_counts(&own->session, &counts);
		nt_window_turn(&own->window, now_ns, &counts);
		own->turn_ns = now_ns + own->session.opts->window_ns / 2;
		if (own->session.stacks)
			nt_stacks_recycle(own->session.stacks, false);
	}
	tell(own, now_ns);
	return true;
}
