// SPDX-License-Identifier: GPL-2.0
#include "sample/sample.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/streams.h"
#include "privileges/privileges.h"
#include "privileges/refusals.h"
#include "sample/report.h"

#define DEFAULT_INTERVAL_NS (5 * NT_SECOND_NS)

/*
 * Time is divided into slots, with one look in each, at a random time of it: each moment is as
 * likely to be looked at as any other, so that no rhythm of 40 ms can hide between looks, and the
 * looks are spread more evenly than by chance. A slot is this long, or this multiple of a look's
 * CPU time.
 */
#define SLOT_NS    (NT_SECOND_NS / 20)
#define SLOT_TIMES 20

/* With so many looks that failed one after another we give up: a passing lack of memory is over. */
#define MOST_FAILED_LOOKS 100

struct sample {
	const struct nt_settings *settings;
	struct nt_targets targets;
	struct nt_source source;
	struct nt_estimate all, recent;  /* since the start, since the last report */
	uint64_t slot_ns, slot_began_ns; /* the slot of the next look */
	uint64_t reports;
	struct nt_loop *loop;
	int look_timer;
	int err;                   /* -errno of a failed write */
	unsigned int failed_looks; /* one after another */
	bool found;                /* the look has found a socket held */
	bool reported;
};

static uint64_t random_below(uint64_t range)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = nt_now_ns() * 0x9e3779b97f4a7c15ULL;
	return random % range;
}

static void fail(struct sample *sample, int err)
{
	sample->err = err;
	nt_loop_stop(sample->loop);
}

/* ---- a look ---- */

static struct nt_seen *add_to(const struct sample *sample, struct nt_estimate *estimate,
			      const struct nt_sampled *sampled)
{
	struct nt_seen *seen = nt_estimate_add(estimate, sampled);

	if (seen && seen->wanted == NT_WANTED_UNKNOWN && !nt_targets_any(&sample->targets))
		seen->wanted = NT_WANTED_YES;
	return seen;
}

/* Takes over whose a connection is, from the other estimate's entry of it. */
static void learn_owner(struct nt_seen *seen, const struct nt_seen *other)
{
	if (seen->process.tgid || other->wanted == NT_WANTED_UNKNOWN)
		return;
	seen->wanted = other->wanted;
	seen->process = other->process;
	seen->nameless = other->nameless;
}

static void take(void *context, const struct nt_sampled *sampled)
{
	struct sample *sample = context;
	struct nt_seen *seen = add_to(sample, &sample->all, sampled);
	struct nt_seen *recent = add_to(sample, &sample->recent, sampled);

	sample->found = true;
	if (!seen || !recent)
		return;
	learn_owner(recent, seen);
	learn_owner(seen, recent);
}

static void name(struct sample *sample)
{
	if (!nt_source_must_name(&sample->source, &sample->recent) &&
	    !nt_source_must_name(&sample->source, &sample->all))
		return;
	if (nt_source_scan(&sample->source))
		return; /* it tries again later: what was not found may be there */
	nt_source_name(&sample->source, &sample->recent);
	nt_source_name(&sample->source, &sample->all);
}

/* Begins the slot after the last one, or, if that is over too, one that begins now. */
static void next_slot(struct sample *sample, uint64_t now, uint64_t cost_ns)
{
	sample->slot_began_ns += sample->slot_ns;
	sample->slot_ns = SLOT_TIMES * cost_ns > SLOT_NS ? SLOT_TIMES * cost_ns : SLOT_NS;
	if (sample->slot_began_ns < now)
		sample->slot_began_ns = now;
	nt_timer_set(sample->look_timer, sample->slot_began_ns + random_below(sample->slot_ns), 0);
}

/* Says once what cannot be looked at. */
static void report_unseen(struct sample *sample)
{
	const struct nt_by_iterator *by = &sample->source.iterator;

	if (sample->source.kind != NT_SOURCE_ITERATOR || sample->reported ||
	    sample->settings->quiet)
		return;
	if ((by->places.hidden || by->refused) &&
	    !(nt_privileges_has(CAP_PERMITTED, CAP_SYS_ADMIN) &&
	      nt_privileges_has(CAP_PERMITTED, CAP_SYS_PTRACE)))
		nt_log("not all network namespaces looked at: CAP_SYS_ADMIN or "
		       "CAP_SYS_PTRACE missing");
	else if (!by->places.count)
		nt_log("--netns: no process lives there, so none of its sockets is seen");
	else
		return;
	sample->reported = true;
}

static void look(void *context, uint32_t what)
{
	struct sample *sample = context;
	uint64_t began = nt_cpu_ns(), cost;
	int err;

	sample->found = false;
	err = nt_source_look(&sample->source, take, sample);
	cost = nt_cpu_ns() - began;
	sample->failed_looks = err ? sample->failed_looks + 1 : 0;
	if (sample->failed_looks == 1)
		nt_log("cannot look at the sockets: %s", strerror(-err));
	if (sample->failed_looks == MOST_FAILED_LOOKS)
		nt_loop_stop(sample->loop);
	if (!err || sample->found) {
		sample->all.looks++;
		sample->recent.looks++;
		sample->all.cost_ns += cost;
		sample->recent.cost_ns += cost;
	}
	report_unseen(sample);
	name(sample);
	next_slot(sample, nt_now_ns(),
		  sample->all.looks ? sample->all.cost_ns / sample->all.looks : cost);
}

static void report(struct sample *sample, bool closing)
{
	struct nt_estimate *estimate = closing ? &sample->all : &sample->recent;
	uint64_t now = nt_now_ns();
	struct nt_sample_report report = {
		.settings = sample->settings,
		.estimate = estimate,
		.source = &sample->source,
		.span_ns = now - estimate->began_ns,
		.closing = closing,
	};
	int err;

	if (closing) {
		sample->source.rest_until_ns = 0; /* now or never */
		name(sample);
	}
	err = nt_sample_report(stdout, &report);
	nt_streams_written(err);
	if (err)
		fail(sample, err);
	if (closing)
		return;
	nt_estimate_clear(&sample->recent);
	sample->recent.began_ns = now;
}

/* ---- the loop ---- */

static void report_is_due(void *context, uint32_t what)
{
	struct sample *sample = context;

	if (nt_reports_interval(sample->settings))
		report(sample, false);
	if (sample->settings->count && ++sample->reports >= sample->settings->count)
		nt_loop_stop(sample->loop);
}

static void all_ended(struct sample *sample)
{
	if (!sample->settings->quiet)
		nt_log("%s", nt_targets_ended(sample->settings));
	nt_loop_stop(sample->loop);
}

static void on_pids(void *context, uint32_t what)
{
	struct sample *sample = context;
	int i;

	while ((i = nt_targets_find_ended(&sample->targets)) >= 0) {
		nt_loop_forget(sample->loop, sample->targets.pidfds[i]);
		if (nt_targets_mark_ended(&sample->targets, i))
			all_ended(sample);
	}
}

static int watch_signals(struct sample *sample)
{
	return nt_loop_signals(sample->loop, NT_SIGNAL(SIGINT) | NT_SIGNAL(SIGTERM), 0, nt_loop_end,
			       sample->loop);
}

static int watch_pids(struct sample *sample)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < sample->settings->n_pids; i++)
		err = nt_loop_watch(sample->loop, sample->targets.pidfds[i], EPOLLIN, on_pids,
				    sample);
	return err;
}

/* Of what is due at one time the report comes first, and no look follows the end. */
static int watch_times(struct sample *sample)
{
	const struct nt_settings *settings = sample->settings;
	uint64_t interval_ns = settings->interval_ns ? settings->interval_ns : DEFAULT_INTERVAL_NS;
	uint64_t end_ns = settings->duration_ns ? nt_in_ns(settings->duration_ns) : NT_NEVER;
	uint64_t now = nt_now_ns();
	int err;

	sample->all.began_ns = sample->recent.began_ns = sample->slot_began_ns = now;
	sample->slot_ns = SLOT_NS;
	err = nt_loop_timer(sample->loop, nt_in_ns(interval_ns), interval_ns, report_is_due,
			    sample);
	if (err >= 0)
		err = nt_loop_timer(sample->loop, end_ns, 0, nt_loop_end, sample->loop);
	if (err >= 0)
		err = sample->look_timer =
			nt_loop_timer(sample->loop, now + random_below(SLOT_NS), 0, look, sample);
	return err < 0 ? err : 0;
}

static enum nt_exit run(struct sample *sample)
{
	nt_log("ready");
	if (nt_loop_run(sample->loop))
		return NT_EXIT_FAILED;
	if (!sample->err && nt_reports_whole(sample->settings, sample->reports))
		report(sample, true);
	if (sample->failed_looks >= MOST_FAILED_LOOKS)
		return NT_EXIT_FAILED;
	return sample->err && sample->err != -EPIPE ? NT_EXIT_FAILED : NT_EXIT_OK;
}

/* ---- begin ---- */

static void take_nothing(void *context, const struct nt_sampled *sampled)
{
}

static bool can_look(void *context)
{
	struct sample *sample = context;

	return !nt_source_look(&sample->source, take_nothing, NULL);
}

/* Before 5.19 it takes CAP_BPF to make an iterator. To enter namespaces takes CAP_SYS_ADMIN; to see
 * whose sockets those of other users are, the others, as far as we have them. */
static int confine(struct sample *sample)
{
	static const char *const but[] = {"setns", NULL};
	static const cap_value_t for_iterator[] = {CAP_SYS_PTRACE, CAP_SYS_ADMIN};
	static const cap_value_t for_diag[] = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH};
	static const struct nt_must_work must_work = {can_look, {CAP_BPF, CAP_SYS_ADMIN}, 2};
	bool by_iterator = sample->source.kind == NT_SOURCE_ITERATOR;
	char kept[128];
	int err = nt_privileges_drop(by_iterator ? for_iterator : for_diag, 2, &must_work,
				     by_iterator, sample, kept, sizeof(kept));

	if (err)
		return err;
	if (sample->settings->verbose)
		nt_log("capabilities kept: %s", kept);
	nt_refuse_system_calls_or_report(by_iterator ? but : NULL, false);
	return 0;
}

static enum nt_exit start_and_run(struct sample *sample)
{
	struct nt_error error;
	char limits[600];
	int err;

	if (!nt_targets_open(&sample->targets, sample->settings, &error) ||
	    !nt_source_open(&sample->source, sample->settings, &sample->targets, limits,
			    sizeof(limits), &error))
		return nt_error_log(&error);
	if (limits[0] && !sample->settings->quiet)
		nt_log("%s", limits);
	err = watch_signals(sample);
	if (err >= 0)
		err = watch_pids(sample);
	if (!err)
		err = confine(sample);
	if (!err)
		err = watch_times(sample);
	return nt_started(err, &error) ? run(sample) : nt_error_log(&error);
}

enum nt_exit nt_sample(const struct nt_settings *settings)
{
	struct sample sample = {.settings = settings, .loop = nt_loop_new()};
	enum nt_exit code;

	if (!sample.loop)
		return NT_EXIT_FAILED;
	nt_quiet_libbpf(settings->verbose);
	nt_loop_signals_end_at_once();
	code = start_and_run(&sample);
	nt_source_close(&sample.source);
	nt_targets_close(&sample.targets);
	nt_estimate_clear(&sample.all);
	nt_estimate_clear(&sample.recent);
	nt_loop_free(sample.loop);
	return code;
}
