// SPDX-License-Identifier: GPL-2.0
#include "fix/fix.h"
#include "fix/keep.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/streams.h"
#include "fix/reach.h"
#include "fix/result.h"
#include "fix/signals.h"
#include "capture/start.h"
#include "base/text.h"

/* The loop's interval of looks for sockets that it did not reach or that have moved, and with --all
 * for new ones. */
#define LOOK_NS NT_SECOND_NS

/* TCP_QUICKACK lasts until the process answers, and setting it sends a pending ACK. The loop sets
 * it this often, or less often, so that this takes at most a tenth of one CPU. */
#define AGAIN_NS    1000000ULL
#define AGAIN_SHARE 10

struct fix {
	const struct nt_settings *settings;
	struct nt_writer writer;
	const struct nt_fix_writer *fix_writer;
	struct nt_session session;
	struct nt_fix_sockets sockets;
	struct nt_fix_result result;
	struct nt_fix_phase *phase; /* the current one; NULL: neither */
	uint64_t look_ns, again_ns; /* CLOCK_MONOTONIC: when next; 0: not at all */
	struct nt_loop *loop;
	int out_err; /* -errno of a failed write */
	bool ended, asking, answered_yes;
};

/* ---- what happens ---- */

static void say(const struct fix *fix, const char *what)
{
	if (!fix->settings->quiet)
		nt_log("%s", what);
}

static void stop(struct fix *fix, enum nt_fix_ended why)
{
	if (fix->ended)
		return;
	fix->ended = true;
	fix->result.ended = why;
}

/* A write failed, so the run ends; a closed pipe is no reason to complain. */
static void note_output(struct fix *fix, int err)
{
	if (!err || fix->out_err)
		return;
	fix->out_err = err;
	stop(fix, NT_FIX_NOBODY_READS);
}

static bool sets_nodelay(const struct fix *fix)
{
	return fix->sockets.option == TCP_NODELAY;
}

/*
 * Returns the end of a stalled connection where the option acts, if a process asked for has it: the
 * sender's for TCP_NODELAY, the receiver's for TCP_QUICKACK. Returns NULL for the other end, for a
 * cork, a handshake that is over, and a socket that the kernel itself uses.
 */
static const struct nt_end *end_to_set(const struct fix *fix, const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;

	if (r->cause == NT_CAUSE_CORK_CEILING || r->hold.reason == NT_HOLD_HANDSHAKE ||
	    nt_fix_is_kernels(&fix->sockets, stall))
		return NULL;
	if (sets_nodelay(fix))
		return stall->side == NT_SIDE_SENDER && r->cause == NT_CAUSE_NAGLE_DELAYED_ACK
			       ? &r->sender
			       : NULL;
	if (stall->side == NT_SIDE_RECEIVER)
		return &r->receiver;
	/* the kernel side marks only the sender's end as asked for */
	return r->receiver.present && nt_tuple_wanted(fix->settings, &r->receiver.tuple) &&
			       nt_targets_match(&fix->session.targets, stall->receiver.tgid)
		       ? &r->receiver
		       : NULL;
}

static void set_one(struct fix *fix, struct nt_fix_socket *s)
{
	if (s && s->state == NT_FIX_PLANNED)
		nt_fix_set(&fix->sockets, s, &fix->session.owners);
}

static uint64_t began_ns(const struct nt_stall *stall)
{
	return stall->record.time_ns - stall->duration_ns;
}

/* Counts a stall although the option was set. Compares only the stalls of as much time as
 * before. */
static void stalled_though_set(struct nt_fix_socket *s, const struct nt_stall *stall)
{
	s->stalls_during++;
	if (began_ns(stall) >= s->set_ns + s->pair.before_ns)
		return;
	s->pair.stalls_during++;
	s->pair.excess_during_ns += stall->excess_ns;
}

/* Handles a stall while the option is set. If the connection is new, or was overlooked, sets it
 * there too. */
static void stalled_while_set(struct fix *fix, const struct nt_stall *stall,
			      const struct nt_end *end)
{
	struct nt_fix_socket *s = nt_fix_find(&fix->sockets, end);

	if (s && s->set_ns && began_ns(stall) >= s->set_ns) {
		stalled_though_set(s, stall);
		return;
	}
	if (!s) {
		s = nt_fix_add(&fix->sockets, end, began_ns(stall), &fix->session.owners,
			       &fix->session.targets);
		set_one(fix, s);
	}
	if (s)
		s->stalled = true;
	if (s && s->set_ns)
		fix->phase->not_yet++;
	else
		fix->phase->never++;
}

/* Takes a stall that lies within a phase. One that began before or ended after it says nothing
 * about the option. */
static void on_stall(void *context, const struct nt_stall *stall)
{
	struct fix *fix = context;
	struct nt_fix_phase *phase = fix->phase;
	const struct nt_end *end;

	if (!phase || !stall->is_stall || began_ns(stall) < phase->begin_ns ||
	    stall->record.time_ns > phase->end_ns)
		return;
	nt_aggregate_add(&phase->stalls, stall);
	end = end_to_set(fix, stall);
	if (!end && nt_fix_is_kernels(&fix->sockets, stall))
		phase->kernels++;
	else if (!end && nt_fix_is_beside(stall))
		phase->beside[stall->record.hold.reason % NT_HOLD_REASONS]++;
	else if (!end)
		phase->other_end++;
	else if (phase == &fix->result.during)
		stalled_while_set(fix, stall, end);
}

/* For --all: adds the connections of the processes asked for that have no entry yet. */
static void look_for_all(struct fix *fix)
{
	const struct nt_settings *settings = fix->settings;
	struct nt_owners *owners = &fix->session.owners;

	if (nt_owners_scan(owners))
		return;
	for (size_t i = 0; i < owners->list.count; i++) {
		const struct nt_owner *owner = &owners->list.owners[i];
		struct nt_end end = {.sk = owner->sk, .tuple = owner->tuple};

		if (!owner->tuple.remote_port || !nt_tuple_wanted(settings, &owner->tuple) ||
		    nt_fix_find(&fix->sockets, &end) ||
		    !nt_targets_match(&fix->session.targets, owner->tgid))
			continue;
		nt_fix_add_reached(&fix->sockets, &end, owners, &fix->session.targets);
	}
}

static void set_planned(struct fix *fix)
{
	for (size_t i = 0; i < fix->sockets.count; i++)
		set_one(fix, &fix->sockets.list[i]);
}

static void do_what_is_due(struct fix *fix)
{
	uint64_t now_ns = nt_now_ns(), cost_ns;

	if (fix->look_ns && now_ns >= fix->look_ns) {
		nt_fix_look_again(&fix->sockets, &fix->session.owners, &fix->session.targets);
		if (fix->settings->all)
			look_for_all(fix);
		set_planned(fix);
		now_ns = nt_now_ns();
		fix->look_ns = now_ns + LOOK_NS;
	}
	if (fix->again_ns && now_ns >= fix->again_ns) {
		nt_fix_set_again(&fix->sockets);
		cost_ns = AGAIN_SHARE * (nt_now_ns() - now_ns);
		fix->again_ns = now_ns + (cost_ns > AGAIN_NS ? cost_ns : AGAIN_NS);
	}
}

/* ---- the loop ---- */

static void on_signal(void *context, uint32_t number)
{
	stop(context, NT_FIX_SIGNAL);
}

static void on_output(void *context, uint32_t what)
{
	if (what & (EPOLLERR | EPOLLHUP)) /* the reader of the pipe, or of the socket, is gone */
		note_output(context, -EPIPE);
}

/* A file has no reader that could go away, and if there is no stdout at all, writing fails. */
static int watch_output(struct fix *fix)
{
	int err = nt_loop_watch(fix->loop, STDOUT_FILENO, 0, on_output, fix);

	return err == -EPERM || err == -EBADF ? 0 : err;
}

static void on_all_ended(void *context)
{
	stop(context, NT_FIX_PROCESS_ENDED);
}

static void read_answer(void *context, uint32_t what)
{
	struct fix *fix = context;
	char line[64];
	ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);

	if (n <= 0)
		fputc('\n', stderr); /* Ctrl-D does not end the line */
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	nt_loop_forget(fix->loop, STDIN_FILENO);
	fix->asking = false;
	fix->answered_yes = !strcasecmp(line, "y") || !strcasecmp(line, "yes");
}

/* Waits for events, at most until the given time, and handles them. */
static void turn(struct fix *fix, uint64_t until_ns)
{
	const uint64_t others[] = {fix->look_ns, fix->again_ns};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i] && others[i] < until_ns)
			until_ns = others[i];
	if (!nt_loop_turn(fix->loop, until_ns)) /* else it has no memory, which passes */
		do_what_is_due(fix);
}

static void begin_phase(struct fix *fix, struct nt_fix_phase *phase)
{
	nt_session_counts(&fix->session, &phase->counts);
	phase->begin_ns = nt_now_ns();
	phase->end_ns = UINT64_MAX;
	fix->phase = phase;
}

/* Ends the phase, sets back what is set, and takes the stalls that are not read yet. */
static void end_phase(struct fix *fix)
{
	struct nt_fix_phase *phase = fix->phase;
	struct nt_counts before = phase->counts;
	struct nt_totals at_end;

	nt_session_counts(&fix->session, &phase->counts);
	at_end = phase->counts.totals;
	phase->end_ns = nt_now_ns();
	if (phase == &fix->result.during)
		nt_fix_restore(&fix->sockets, &fix->session.owners);
	nt_session_drain(&fix->session);
	nt_session_counts(&fix->session, &phase->counts);
	/* to set back takes a while, in which others write on */
	phase->counts.totals = at_end;
	nt_counts_subtract(&phase->counts, &before);
	fix->phase = NULL;
}

/* ---- from the first look to the answer ---- */

/* Sums up the stalls to compare with the time while the option is set. It leaves out the first
 * stall: a connection whose only stall fell into this phase by chance would seem cured. */
static void stalled_before(const struct nt_fix_phase *before, struct nt_fix_socket *s,
			   const struct nt_connection *c)
{
	uint64_t left_ns = before->end_ns - c->first_ns;

	s->stalled = true;
	s->stalls_before += c->count;
	if (left_ns > s->pair.before_ns)
		s->pair.before_ns = left_ns;
	s->pair.stalls_before += c->count - 1;
	s->pair.excess_before_ns += c->excess_ns - c->first_excess_ns;
}

/* Collects the sockets that stalled; it changes nothing. */
static void plan(struct fix *fix)
{
	struct nt_connection **list = nt_aggregate_sorted(&fix->result.before.stalls);
	size_t n = list ? nt_aggregate_count(&fix->result.before.stalls) : 0;

	nt_owners_scan(&fix->session.owners);
	for (size_t i = 0; i < n; i++) {
		const struct nt_end *end = end_to_set(fix, &list[i]->last);
		struct nt_fix_socket *s = end ? nt_fix_find(&fix->sockets, end) : NULL;
		struct nt_advice advice;
		struct nt_stall last;

		if (!end)
			continue;
		if (!s)
			s = nt_fix_add(&fix->sockets, end, 0, &fix->session.owners,
				       &fix->session.targets);
		last = list[i]->last;
		if (s)
			stalled_before(&fix->result.before, s, list[i]);
		if (s && !s->process.tgid) /* the socket is closed */
			s->process = sets_nodelay(fix) ? last.sender : last.receiver;
		if (fix->result.remedy[0])
			continue;
		last.side = sets_nodelay(fix) ? NT_SIDE_SENDER : NT_SIDE_RECEIVER;
		nt_advice_for(&last, nt_connection_pattern(list[i]), &advice);
		snprintf(fix->result.remedy, sizeof(fix->result.remedy), "%s", advice.fix);
	}
	free(list);
	if (fix->settings->all)
		look_for_all(fix);
}

static void write_before(struct fix *fix)
{
	const struct nt_fix_phase *before = &fix->result.before;
	struct nt_report report = {
		.hooks = &fix->session.tracer.hooks,
		.settings = fix->settings,
		.origin = &fix->session.origin,
		.stalls = &before->stalls,
		.stacks = fix->session.stacks,
		.counts = before->counts,
		.span_ns = before->end_ns - before->begin_ns,
	};
	int err = fix->writer.report(&fix->writer, stdout, &report);

	if (!err)
		err = fix->fix_writer->plan(stdout, &fix->result);
	note_output(fix, err);
}

/* Asks on the terminal. Text that was typed before the question is no answer. */
static bool ask(struct fix *fix)
{
	char whose[NT_FIX_WHOSE_LEN];

	nt_fix_whose(&fix->sockets, whose);
	tcflush(STDIN_FILENO, TCIFLUSH);
	fprintf(stderr, "Set %s on %s for %s? [y/N] ", nt_fix_option_name(&fix->sockets), whose,
		nt_duration(fix->settings->for_ns).text);
	fflush(stderr);
	fix->asking = !nt_loop_watch(fix->loop, STDIN_FILENO, EPOLLIN, read_answer, fix);
	while (fix->asking && !fix->ended)
		turn(fix, UINT64_MAX);
	if (fix->asking)
		fputc('\n', stderr); /* no answer has ended the question's line */
	return fix->answered_yes;
}

/* ---- the experiment ---- */

/* Announces the experiment before it begins. The loop writes nothing while the option is set, since
 * a slow reader would delay it. */
static void announce(struct fix *fix)
{
	char text[NT_FIX_WHOSE_LEN + 100], whose[NT_FIX_WHOSE_LEN];

	nt_fix_whose(&fix->sockets, whose);
	snprintf(text, sizeof(text), "setting %s%s on %s for %s; press Ctrl-C to stop early",
		 nt_fix_option_name(&fix->sockets), sets_nodelay(fix) ? "" : " again and again",
		 whose, nt_duration(fix->settings->for_ns).text);
	say(fix, text);
}

static void experiment(struct fix *fix)
{
	struct nt_fix_phase *during = &fix->result.during;
	uint64_t until_ns;

	announce(fix);
	nt_session_drain(&fix->session);           /* stalls that came while it asked */
	fix->session.owners.interruptible = false; /* a signal must not stop the restore */
	nt_fix_catch_crashes(&fix->sockets);
	set_planned(fix);
	begin_phase(fix, during);
	fix->result.set = true;
	until_ns = during->begin_ns + fix->settings->for_ns;
	fix->look_ns = during->begin_ns + LOOK_NS;
	if (!sets_nodelay(fix))
		fix->again_ns = during->begin_ns;
	while (!fix->ended && nt_now_ns() < until_ns)
		turn(fix, until_ns);
	fix->look_ns = fix->again_ns = 0;
	end_phase(fix);
	if (fix->sockets.rounds)
		fix->result.again_ns = (during->end_ns - during->begin_ns) / fix->sockets.rounds;
}

/* Names the sockets that could not be set back. Returns 0, or the exit code if there are any. */
static enum nt_exit report_stuck(const struct fix *fix)
{
	enum nt_exit code = NT_EXIT_OK;

	for (size_t i = 0; i < fix->sockets.count; i++) {
		const struct nt_fix_socket *s = &fix->sockets.list[i];

		if (s->state != NT_FIX_STUCK)
			continue;
		nt_log("cannot set %s back on fd %d of process %d: %s; it stays until the "
		       "connection is closed",
		       nt_fix_option_name(&fix->sockets), s->fd, s->process.tgid, nt_fix_why(s));
		code = NT_EXIT_FAILED;
	}
	return code;
}

static enum nt_exit run(struct fix *fix)
{
	char text[80];
	uint64_t until_ns;
	enum nt_exit code;

	snprintf(text, sizeof(text), "watching for stalls for %s; nothing is changed yet",
		 nt_duration(fix->settings->for_ns).text);
	say(fix, text);
	begin_phase(fix, &fix->result.before);
	until_ns = fix->phase->begin_ns + fix->settings->for_ns;
	while (!fix->ended && nt_now_ns() < until_ns)
		turn(fix, until_ns);
	end_phase(fix);
	if (!fix->ended)
		plan(fix);
	if (!fix->out_err)
		write_before(fix);
	turn(fix, 0); /* a signal may have come meanwhile */
	/* only that report shows stacks; naming more would take CPU time from the experiment */
	fix->session.unnamed = true;
	/* new connections may take the place of those that are closed by now */
	if (!nt_fix_count(&fix->sockets, NT_FIX_PLANNED) &&
	    !nt_fix_count(&fix->sockets, NT_FIX_CLOSED))
		stop(fix, NT_FIX_NOTHING_TO_SET);
	if (!fix->ended && !fix->settings->yes && !ask(fix))
		stop(fix, NT_FIX_DECLINED);
	if (!fix->ended)
		experiment(fix);
	if (fix->result.ended == NT_FIX_PROCESS_ENDED)
		say(fix, nt_targets_ended(fix->settings));
	code = report_stuck(fix);
	if (!fix->out_err)
		note_output(fix, fix->fix_writer->result(stdout, &fix->result));
	return nt_streams_written(fix->out_err) ? NT_EXIT_FAILED : code;
}

/* ---- the start ---- */

static int watch_signals(void *context)
{
	struct fix *fix = context;

	return nt_fix_watch_signals(fix->loop, on_signal, fix);
}

static bool prepare(void *context, struct nt_error *error)
{
	struct fix *fix = context;

	return nt_fix_permitted(&fix->session.owners, &fix->session.targets, error);
}

static void say_start(void *context, const char *kept)
{
	struct fix *fix = context;

	if (fix->settings->verbose)
		nt_log("capabilities kept: %s", kept);
	if (fix->writer.start)
		note_output(fix, fix->writer.start(stdout, &fix->session.tracer.hooks,
						   &fix->session.origin, false, NULL));
}

static enum nt_exit start_and_run(struct fix *fix)
{
	const struct nt_start start = {
		.loop = fix->loop,
		.on_stall = on_stall,
		.watch = {.on_all_ended = on_all_ended},
		.watch_signals = watch_signals,
		.prepare = prepare,
		.announce = say_start,
		.context = fix,
	};
	int option = fix->settings->nodelay ? TCP_NODELAY : TCP_QUICKACK;
	struct nt_error error;

	if (!nt_started(watch_output(fix), &error) ||
	    !nt_started(nt_fix_open(&fix->sockets, option), &error) ||
	    !nt_session_start(&fix->session, fix->settings, &start, &error))
		return nt_error_log(&error);
	return run(fix);
}

enum nt_exit nt_fix(const struct nt_settings *settings)
{
	struct fix fix = {
		.settings = settings,
		.writer = nt_writer_of(settings->output, settings->wide),
		.fix_writer = &nt_fix_writers[settings->output],
		.result = {.settings = settings, .writer = &fix.writer, .sockets = &fix.sockets},
	};
	enum nt_exit code;

	if (nt_fix_keeps(settings))
		return nt_fix_keep(settings);
	if (!settings->yes && (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))) {
		nt_log("fix: no terminal to ask for confirmation; give --yes to skip the "
		       "question");
		return NT_EXIT_USAGE;
	}
	fix.loop = nt_loop_new();
	if (!fix.loop)
		return NT_EXIT_FAILED;
	nt_aggregate_init(&fix.result.before.stalls, NT_FIX_MOST);
	nt_aggregate_init(&fix.result.during.stalls, NT_FIX_MOST);
	code = start_and_run(&fix);
	nt_session_close(&fix.session);
	nt_fix_close(&fix.sockets);
	nt_aggregate_clear(&fix.result.before.stalls);
	nt_aggregate_clear(&fix.result.during.stalls);
	nt_loop_free(fix.loop);
	return code;
}
