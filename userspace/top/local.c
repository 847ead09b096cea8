// SPDX-License-Identifier: GPL-2.0
#include "top/local.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"
#include "capture/start.h"
#include "output/advice.h"

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

/* ---- what was traced, as the screen has it ---- */

static void take_word(char out[NT_TOP_WORD], const char *word)
{
	snprintf(out, NT_TOP_WORD, "%s", word ? word : "");
}

static void key_of(const struct nt_connection *c, struct nt_top_key *key)
{
	const struct nt_tuple *tuple = &nt_stall_end(&c->last, c->last.side)->tuple;

	memset(key, 0, sizeof(*key));
	key->pid = nt_stall_process(&c->last, c->last.side)->tgid;
	key->netns = tuple->netns;
	key->sender = c->key.side == NT_SIDE_SENDER;
	nt_format_address(tuple, true, key->local, sizeof(key->local));
	nt_format_address(tuple, false, key->remote, sizeof(key->remote));
	take_word(key->cause, nt_cause_word(c->key.cause));
	take_word(key->reason, nt_hold_reason_word(c->key.reason));
}

static void take_stall(struct nt_top_stall *last, const struct nt_stall *stall)
{
	int64_t ended_ns = nt_time_of_day_ns(stall->record.time_ns);
	const struct nt_hold_part *hold = &stall->record.hold;
	const struct nt_ack_part *ack = &stall->record.ack;

	memset(last, 0, sizeof(*last));
	last->known = true;
	last->held = stall->record.sender.present;
	last->pending = stall->record.receiver.present;
	nt_format_clock(ended_ns / NT_SECOND_NS, ended_ns % NT_SECOND_NS / 1000, last->clock);
	last->duration_us = stall->duration_ns / 1000;
	if (last->held) {
		take_word(last->reason, nt_hold_reason_word(hold->reason));
		take_word(last->release, nt_release_word(hold->release));
		last->bytes = hold->bytes;
		last->in_flight = hold->in_flight_bytes;
		last->mss = hold->mss;
	}
	if (last->pending) {
		take_word(last->ack_release, nt_ack_release_word(ack->release));
		last->ack_us = nt_pending_ack_ns(ack) / 1000;
		last->ack_bytes = ack->bytes;
		last->locked = stall->record.receiver.locked == NT_LOCK_UNSEEN;
	}
	last->ordered = last->held && last->pending && hold->begin_ns && ack->begin_ns;
	if (last->ordered)
		last->ack_after_us = (int64_t)(ack->begin_ns - hold->begin_ns) / 1000;
}

static void take_stack(struct nt_top_row *row, const struct nt_stall *stall,
		       struct nt_stacks *stacks)
{
	const struct nt_frame *frames;
	size_t n;

	row->where[0] = '\0';
	if (!stacks || stall->side != NT_SIDE_SENDER)
		return;
	n = nt_stacks_get(stacks, stall->record.hold.stack_id, &frames);
	for (size_t i = 0; i < n && i < NT_TOP_FRAMES; i++) {
		char name[NT_TOP_NAME];

		nt_format_frame(&frames[i], name, sizeof(name));
		if (!nt_top_row_frame(row, name))
			return;
	}
}

static void take_connection(struct nt_top_own *own, struct nt_connection *c, uint64_t now_ns)
{
	bool sender = c->last.side == NT_SIDE_SENDER;
	const struct nt_process *process = sender ? &c->last.sender : &c->last.receiver;
	const struct nt_process *other = sender ? &c->last.receiver : &c->last.sender;
	unsigned int pattern = nt_connection_pattern(c);
	struct nt_advice advice;
	struct nt_top_row *row;
	struct nt_top_key key;

	key_of(c, &key);
	row = nt_top_data_get(own->data, &key);
	if (!row)
		return;
	nt_top_row_count(row, now_ns, c->count);
	row->excess_us = c->excess_ns / 1000;
	row->p50_us = nt_percentile(&c, 1, 50) / 1000;
	row->p99_us = nt_percentile(&c, 1, 99) / 1000;
	row->max_us = c->max_ns / 1000;
	row->seen = c->seen;
	row->inferred = c->count - c->seen;
	nt_escape(process->comm, sizeof(process->comm), row->comm, sizeof(row->comm));
	nt_escape(process->cgroup, sizeof(process->cgroup), row->cgroup, sizeof(row->cgroup));
	row->container = process->container;
	row->peer[0] = '\0';
	if (other->tgid)
		nt_format_process(other, row->peer, sizeof(row->peer));
	nt_advice_for(&c->last, pattern, &advice);
	take_word(row->pattern, nt_pattern_word(pattern));
	snprintf(row->what, sizeof(row->what), "%s", advice.pattern);
	snprintf(row->why, sizeof(row->why), "%s", advice.why);
	snprintf(row->fix, sizeof(row->fix), "%s", advice.fix);
	take_stack(row, &c->last, own->session.stacks);
	take_stall(&row->last, &c->last);
}

static void take_connections(struct nt_top_own *own, struct nt_connection **sorted, size_t n,
			     uint64_t now_ns)
{
	struct nt_top_key key;
	size_t more = 0;

	nt_top_data_age(own->data);
	for (size_t i = 0; i < n; i++) {
		key_of(sorted[i], &key);
		more += !nt_top_data_expect(own->data, &key);
	}
	nt_top_data_make_way(own->data, more);
	for (size_t i = 0; i < n; i++)
		take_connection(own, sorted[i], now_ns);
	nt_top_data_sweep(own->data);
}

static void take_counts(struct nt_top_data *data, const struct nt_counts *counts)
{
	const struct nt_totals *t = &counts->totals;

	data->writes = t->writes;
	data->holds = data->delayed_acks = 0;
	for (size_t i = 1; i < NT_HOLD_REASONS; i++)
		data->holds += t->holds[i];
	for (size_t i = 1; i < NT_ACK_RELEASES; i++)
		data->delayed_acks += t->delayed_acks[i];
	data->records_dropped = nt_counts_dropped(counts);
}

static void take_tracer(struct nt_top_data *data, const struct nt_tracer *tracer)
{
	struct utsname name;

	uname(&name);
	snprintf(data->kernel, sizeof(data->kernel), "%s", name.release);
	take_word(data->hooks, nt_family_name(tracer->hooks.family));
	data->missing_hooks = 0;
	for (size_t i = 0; i < nt_n_hooks; i++)
		data->missing_hooks +=
			tracer->hooks.missing[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE;
}

/* Updates the data as a daemon's snapshot would, with the last stall of each connection. */
static void report(struct nt_top_own *own, uint64_t now_ns)
{
	struct nt_top_data *data = own->data;
	struct nt_connection **sorted;
	struct nt_window_half recent;
	struct nt_counts counts;
	size_t n;

	nt_window_sum(&own->window, &recent);
	sorted = nt_aggregate_costly(&recent.stalls);
	n = sorted ? nt_aggregate_count(&recent.stalls) : 0;
	data->any = true;
	data->full = n >= NT_TOP_ROWS;
	if (n > NT_TOP_ROWS)
		n = NT_TOP_ROWS;
	nt_session_counts(&own->session, &counts);
	take_tracer(data, &own->session.tracer);
	take_counts(data, &counts);
	data->uptime_us = (now_ns - own->started_ns) / 1000;
	data->stalls = own->stalls;
	data->excess_us = own->excess_ns / 1000;
	data->span_us = (now_ns - recent.began_ns) / 1000;
	nt_top_rates_add(&data->rates, now_ns, data->stalls);
	take_connections(own, sorted, n, now_ns);
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
