// SPDX-License-Identifier: GPL-2.0
#include "fix.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

#include "clock.h"
#include "confine.h"
#include "fix_output.h"
#include "fix_reach.h"
#include "fix_report.h"
#include "fix_signals.h"
#include "report.h"
#include "session.h"
#include "text.h"

/* How often those that were not reached, or have moved, and with --all new ones are looked for. */
#define LOOK_NS NT_SECOND_NS

/*
 * TCP_QUICKACK lasts until the process answers, and sends an ACK that is put off: so often, or less
 * often, so that it takes at most a tenth of one CPU.
 */
#define AGAIN_NS    1000000ULL
#define AGAIN_SHARE 10

struct fix {
	const struct nt_options *opts;
	struct nt_session session;
	struct nt_fix_sockets sockets;
	struct nt_fix_result result;
	struct nt_fix_phase *phase; /* that is on; NULL: neither */
	unsigned int pids_left;
	uint64_t look_ns, again_ns; /* CLOCK_MONOTONIC: when next; 0: not at all */
	int signals;
	int out_err; /* -errno with which writing failed */
	bool ended, asking, answered_yes;
};

enum {
	FD_SIGNALS,
	FD_RECORDS,
	FD_OUTPUT,
	FD_ANSWER,
	FD_PIDS,
};

/* ---- what happens ---- */

static void say(const struct fix *fix, const char *what)
{
	if (!fix->opts->quiet)
		nt_complain("%s", what);
}

static void stop(struct fix *fix, enum nt_fix_ended why)
{
	if (fix->ended)
		return;
	fix->ended = true;
	fix->result.ended = why;
}

/* Nobody reads any more: it ends, without a word where it is only a closed pipe. */
static void note_output(struct fix *fix, int err)
{
	if (!err || fix->out_err)
		return;
	fix->out_err = err;
	stop(fix, NT_FIX_NOBODY_READS);
}

/* err: 0, or -errno of what made it. */
static void end_output(struct fix *fix, struct nt_fix_output *output, int err)
{
	if (fix->ended) /* the signals that ended it do not end the output of its result */
		nt_fix_forget_signals(fix->signals);
	err = nt_fix_end_output(output, err, fix->signals);
	if (err == -EINTR)
		stop(fix, NT_FIX_SIGNAL);
	note_output(fix, err);
}

static bool sets_nodelay(const struct fix *fix)
{
	return fix->sockets.option == TCP_NODELAY;
}

/*
 * The end of a stalled connection where the option acts, if it is that of a process asked for: the
 * sender's for TCP_NODELAY, the receiver's for TCP_QUICKACK. NULL: the other one, or it is a cork.
 */
static const struct nt_end *end_to_set(const struct fix *fix, const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;

	if (r->cause != NT_CAUSE_NAGLE_DELAYED_ACK)
		return NULL;
	if (sets_nodelay(fix))
		return stall->side == NT_SIDE_SENDER ? &r->sender : NULL;
	if (stall->side == NT_SIDE_RECEIVER)
		return &r->receiver;
	/* what was asked for is known of the sender's end only */
	return r->receiver.present && nt_tuple_wanted(fix->opts, &r->receiver.tuple) &&
			       nt_targets_match(&fix->session.targets, stall->peer.tgid)
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

/* A stall on which the option acted; compared are those in as much time as was before. */
static void stalled_though_set(struct nt_fix_socket *s, const struct nt_stall *stall)
{
	s->stalls_during++;
	if (began_ns(stall) >= s->set_ns + s->pair.before_ns)
		return;
	s->pair.stalls_during++;
	s->pair.lost_during_ns += stall->excess_ns;
}

/* A stall while it is set: of a connection that is new, or was overlooked, which is set now too. */
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

/* What began before a phase, or ended after it, is of neither: the option had no part in it. */
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
	if (stall->record.cause == NT_CAUSE_CORK_CEILING)
		phase->corked++;
	else if (!end)
		phase->other_end++;
	else if (phase == &fix->result.during)
		stalled_while_set(fix, stall, end);
}

/* --all: what of the processes asked for is connected, and not known yet. */
static void look_for_all(struct fix *fix)
{
	const struct nt_options *opts = fix->opts;
	struct nt_owners *owners = &fix->session.owners;

	if (nt_owners_scan(owners))
		return;
	for (size_t i = 0; i < owners->count; i++) {
		const struct nt_owner *owner = &owners->list[i];
		struct nt_end end = {.sk = owner->sk, .tuple = owner->tuple};

		if (!owner->tuple.remote_port || !nt_tuple_wanted(opts, &owner->tuple) ||
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
		if (fix->opts->all)
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

static void read_answer(struct fix *fix)
{
	char line[64];
	ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);

	if (n <= 0)
		fputc('\n', stderr); /* Ctrl-D ends no line */
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	fix->asking = false;
	fix->answered_yes = !strcasecmp(line, "y") || !strcasecmp(line, "yes");
}

static void pid_ended(struct fix *fix, unsigned int i)
{
	nt_session_drain(&fix->session); /* what was its own while it lived */
	nt_targets_ended(&fix->session.targets, i);
	if (!--fix->pids_left)
		stop(fix, NT_FIX_PROCESS_ENDED);
}

static struct timespec patience(const struct fix *fix, uint64_t until_ns)
{
	const uint64_t others[] = {fix->look_ns, fix->again_ns};
	uint64_t now_ns = nt_now_ns(), wait_ns;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i] && others[i] < until_ns)
			until_ns = others[i];
	wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	return (struct timespec){.tv_sec = wait_ns / NT_SECOND_NS,
				 .tv_nsec = wait_ns % NT_SECOND_NS};
}

/* Waits for what happens, until then at most, and handles it. */
static void turn(struct fix *fix, uint64_t until_ns)
{
	struct pollfd fds[FD_PIDS + NT_MAX_PIDS] = {
		[FD_SIGNALS] = {.fd = fix->signals, .events = POLLIN},
		[FD_RECORDS] = {.fd = nt_session_fd(&fix->session), .events = POLLIN},
		[FD_OUTPUT] = {.fd = STDOUT_FILENO}, /* a pipe whose reader has gone: POLLERR */
		[FD_ANSWER] = {.fd = fix->asking ? STDIN_FILENO : -1, .events = POLLIN},
	};
	struct timespec wait = patience(fix, until_ns);

	for (unsigned int i = 0; i < fix->opts->n_pids; i++)
		fds[FD_PIDS + i] =
			(struct pollfd){.fd = fix->session.targets.pidfds[i], .events = POLLIN};
	if (ppoll(fds, FD_PIDS + fix->opts->n_pids, &wait, NULL) < 0)
		return; /* only for a moment: a harmless signal, no memory */
	if (fds[FD_SIGNALS].revents)
		stop(fix, NT_FIX_SIGNAL);
	if (fds[FD_OUTPUT].revents & POLLERR)
		note_output(fix, -EPIPE);
	if (fds[FD_ANSWER].revents)
		read_answer(fix);
	for (unsigned int i = 0; i < fix->opts->n_pids; i++)
		if (fds[FD_PIDS + i].revents)
			pid_ended(fix, i);
	if (fds[FD_RECORDS].revents)
		nt_session_consume(&fix->session);
	do_what_is_due(fix);
}

static void begin_phase(struct fix *fix, struct nt_fix_phase *phase)
{
	nt_session_counts(&fix->session, &phase->counts);
	phase->begin_ns = nt_now_ns();
	phase->end_ns = UINT64_MAX;
	fix->phase = phase;
}

static void end_phase(struct fix *fix, uint64_t end_ns)
{
	struct nt_fix_phase *phase = fix->phase;
	struct nt_counts before = phase->counts;

	phase->end_ns = end_ns;
	nt_session_drain(&fix->session);
	nt_session_counts(&fix->session, &phase->counts);
	nt_counts_subtract(&phase->counts, &before);
	fix->phase = NULL;
}

/* ---- from the first look to the answer ---- */

/*
 * What is to be compared with the time while it is set. The first stall is left out: those whose
 * only one fell into the first look by chance would all seem to be cured.
 */
static void stalled_before(const struct nt_fix_phase *before, struct nt_fix_socket *s,
			   const struct nt_connection *c)
{
	uint64_t left_ns = before->end_ns - c->first_ns;

	s->stalled = true;
	s->stalls_before += c->count;
	if (left_ns > s->pair.before_ns)
		s->pair.before_ns = left_ns;
	s->pair.stalls_before += c->count - 1;
	s->pair.lost_before_ns += c->lost_ns - c->first_lost_ns;
}

/* The sockets that stalled, as they are; nothing is changed. */
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
		if (s && !s->process.tgid) /* it has been closed */
			s->process = sets_nodelay(fix) || last.side == NT_SIDE_RECEIVER ? last.self
											: last.peer;
		if (fix->result.remedy[0])
			continue;
		last.side = sets_nodelay(fix) ? NT_SIDE_SENDER : NT_SIDE_RECEIVER;
		nt_advice_for(&last, nt_connection_pattern(list[i]), &advice);
		snprintf(fix->result.remedy, sizeof(fix->result.remedy), "%s", advice.fix);
	}
	free(list);
	if (fix->opts->all)
		look_for_all(fix);
}

static void write_start(struct fix *fix)
{
	struct nt_fix_output output;

	if (nt_fix_begin_output(&output))
		end_output(fix, &output, nt_json_start(output.file, &fix->session.tracer, NULL));
	else
		note_output(fix, -ENOMEM);
}

static void write_before(struct fix *fix)
{
	const struct nt_fix_phase *before = &fix->result.before;
	struct nt_report report = {
		.tracer = &fix->session.tracer,
		.opts = fix->opts,
		.stalls = &before->stalls,
		.stacks = fix->session.stacks,
		.counts = before->counts,
		.span_ns = before->end_ns - before->begin_ns,
	};

	struct nt_fix_output output;
	int err;

	if (!nt_fix_begin_output(&output)) {
		note_output(fix, -ENOMEM);
		return;
	}
	if (fix->opts->output == NT_OUTPUT_JSON)
		err = nt_json_report(output.file, &report);
	else
		err = nt_text_report(output.file, &report);
	if (!err && fix->opts->output != NT_OUTPUT_JSON)
		err = nt_fix_text_plan(output.file, &fix->result);
	end_output(fix, &output, err);
}

static void write_result(struct fix *fix)
{
	bool json = fix->opts->output == NT_OUTPUT_JSON;
	struct nt_fix_output output;

	if (!nt_fix_begin_output(&output))
		note_output(fix, -ENOMEM);
	else
		end_output(fix, &output,
			   (json ? nt_fix_json_result : nt_fix_text_result)(output.file,
									    &fix->result));
}

/* On the terminal, where what was typed before the question is no answer to it. */
static bool ask(struct fix *fix)
{
	char whose[NT_FIX_WHOSE_LEN], span[16];

	nt_fix_whose(&fix->sockets, whose);
	nt_format_duration(fix->opts->for_ns, span, sizeof(span));
	tcflush(STDIN_FILENO, TCIFLUSH);
	fprintf(stderr, "Set %s on %s for %s? [y/N] ", nt_fix_option_name(&fix->sockets), whose,
		span);
	fflush(stderr);
	fix->asking = true;
	while (fix->asking && !fix->ended)
		turn(fix, UINT64_MAX);
	if (fix->asking)
		fputc('\n', stderr); /* the question's line has no end of its own */
	return fix->answered_yes;
}

/* ---- the experiment ---- */

/* Said before it is done: while something is set nothing is written, for who reads slowly would
 * hold it up. */
static void announce(struct fix *fix)
{
	char text[NT_FIX_WHOSE_LEN + 100], whose[NT_FIX_WHOSE_LEN], span[16];

	nt_fix_whose(&fix->sockets, whose);
	nt_format_duration(fix->opts->for_ns, span, sizeof(span));
	snprintf(text, sizeof(text), "sets %s%s on %s for %s; Ctrl-C ends it sooner",
		 nt_fix_option_name(&fix->sockets), sets_nodelay(fix) ? "" : " again and again",
		 whose, span);
	say(fix, text);
}

static void experiment(struct fix *fix)
{
	struct nt_fix_phase *during = &fix->result.during;
	struct nt_stacks *stacks = fix->session.stacks;
	uint64_t until_ns;

	announce(fix);
	/* frames are named from files, which may take long; nothing shows them from here on */
	fix->session.stacks = NULL;
	nt_session_drain(&fix->session); /* what stalled while it asked */
	nt_fix_catch_crashes(&fix->sockets);
	begin_phase(fix, during);
	set_planned(fix);
	during->begin_ns = nt_now_ns();
	fix->result.set = true;
	until_ns = during->begin_ns + fix->opts->for_ns;
	fix->look_ns = during->begin_ns + LOOK_NS;
	if (!sets_nodelay(fix))
		fix->again_ns = during->begin_ns;
	while (!fix->ended && nt_now_ns() < until_ns)
		turn(fix, until_ns);
	fix->look_ns = fix->again_ns = 0;
	during->end_ns = nt_now_ns();
	nt_fix_restore(&fix->sockets, &fix->session.owners);
	if (fix->sockets.rounds)
		fix->result.again_ns = (during->end_ns - during->begin_ns) / fix->sockets.rounds;
	end_phase(fix, during->end_ns);
	fix->session.stacks = stacks;
}

/* 0, or the exit code where some are not as they were. */
static enum nt_exit tell_stuck(const struct fix *fix)
{
	enum nt_exit code = NT_EXIT_OK;

	for (size_t i = 0; i < fix->sockets.count; i++) {
		const struct nt_fix_socket *s = &fix->sockets.list[i];

		if (s->state != NT_FIX_STUCK)
			continue;
		nt_complain("cannot set %s back on fd %d of process %d: %s; it stays until the "
			    "connection is closed",
			    nt_fix_option_name(&fix->sockets), s->fd, s->process.tgid,
			    nt_fix_why(s));
		code = NT_EXIT_FAILED;
	}
	return code;
}

static enum nt_exit run(struct fix *fix)
{
	char text[80], span[16];
	uint64_t until_ns;
	enum nt_exit code;

	nt_format_duration(fix->opts->for_ns, span, sizeof(span));
	snprintf(text, sizeof(text), "looks for stalls for %s; nothing is changed yet", span);
	say(fix, text);
	begin_phase(fix, &fix->result.before);
	until_ns = fix->phase->begin_ns + fix->opts->for_ns;
	while (!fix->ended && nt_now_ns() < until_ns)
		turn(fix, until_ns);
	end_phase(fix, nt_now_ns());
	if (!fix->ended)
		plan(fix);
	if (!fix->out_err)
		write_before(fix);
	/* in the place of those that are closed by now others may come */
	if (!nt_fix_count(&fix->sockets, NT_FIX_PLANNED) &&
	    !nt_fix_count(&fix->sockets, NT_FIX_CLOSED))
		stop(fix, NT_FIX_NOTHING_TO_SET);
	if (!fix->ended && !fix->opts->yes && !ask(fix))
		stop(fix, NT_FIX_DECLINED);
	if (!fix->ended)
		experiment(fix);
	if (fix->result.ended == NT_FIX_PROCESS_ENDED)
		say(fix, fix->opts->n_pids == 1 ? "the process ended" : "all processes ended");
	code = tell_stuck(fix);
	if (!fix->out_err)
		write_result(fix);
	if (fix->out_err && fix->out_err != -EPIPE) {
		nt_complain("cannot write the output: %s", strerror(-fix->out_err));
		return NT_EXIT_FAILED;
	}
	return code;
}

/* ---- the start ---- */

static enum nt_exit start_and_run(struct fix *fix)
{
	enum nt_exit code;
	char err[512];
	char kept[128];
	int cause;

	fix->signals = nt_fix_watch_signals();
	cause = fix->signals < 0 ? fix->signals : 0;
	if (!cause)
		cause = nt_fix_open(&fix->sockets, fix->opts->nodelay ? TCP_NODELAY : TCP_QUICKACK);
	if (cause) {
		nt_complain("cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	code = nt_session_open(&fix->session, fix->opts, on_stall, fix, err, sizeof(err));
	if (!code)
		code = nt_fix_permitted(&fix->session.owners, &fix->session.targets, err,
					sizeof(err));
	if (code) {
		nt_complain("%s", err);
		return code;
	}
	fix->pids_left = fix->opts->n_pids;
	if (!fix->opts->quiet)
		nt_session_print_hooks(&fix->session);
	cause = nt_confine(&fix->session, kept, sizeof(kept));
	if (cause) {
		nt_complain("cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	if (fix->opts->verbose)
		nt_complain("capabilities kept: %s", kept);
	if (fix->opts->output == NT_OUTPUT_JSON)
		write_start(fix);
	fputs("nagletrace: ready\n", stderr);
	return run(fix);
}

enum nt_exit nt_fix(const struct nt_options *opts)
{
	struct fix fix = {
		.opts = opts,
		.result = {.opts = opts, .sockets = &fix.sockets},
		.signals = -1,
	};
	enum nt_exit code;

	if (!opts->yes && (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))) {
		nt_complain("fix: asks before it sets anything, and there is no terminal to ask "
			    "on; give --yes to do without");
		return NT_EXIT_USAGE;
	}
	nt_aggregate_init(&fix.result.before.stalls, NT_FIX_MOST);
	nt_aggregate_init(&fix.result.during.stalls, NT_FIX_MOST);
	code = start_and_run(&fix);
	nt_session_close(&fix.session);
	nt_fix_close(&fix.sockets);
	nt_aggregate_clear(&fix.result.before.stalls);
	nt_aggregate_clear(&fix.result.during.stalls);
	if (fix.signals >= 0)
		close(fix.signals);
	return code;
}
