// SPDX-License-Identifier: GPL-2.0
#include "top/top.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/text.h"
#include "protocol/client.h"
#include "top/detail.h"
#include "top/keys.h"
#include "top/local.h"
#include "top/remote.h"
#include "top/table.h"

#define DEFAULT_INTERVAL_NS NT_SECOND_NS

struct top {
	const struct nt_settings *settings;
	struct nt_top_daemon daemon;
	struct nt_top_own *trace; /* of our own, if no daemon answers; else NULL */
	struct nt_top_model model;
	struct nt_screen screen;
	struct nt_top_about about;
	uint64_t end_ns; /* the end by --duration; 0: none */
	struct nt_loop *loop;
	bool redraw;  /* a key or a signal asks for it */
	bool pressed; /* keys are to be read */
	bool stop;
};

/*
 * Stops as the shell expects it, with the terminal restored meanwhile. The default action of
 * SIGTSTP, unlike SIGSTOP, spares an orphaned process group, which nobody would continue
 * (get_signal(): is_current_pgrp_orphaned()).
 */
static void stop_for_a_while(struct top *top)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	nt_screen_suspend(&top->screen);
	signal(SIGTSTP, SIG_DFL);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL); /* it stops here */
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGTSTP, SIG_IGN);
	nt_screen_resume(&top->screen);
}

static void on_signal(void *context, uint32_t number)
{
	struct top *top = context;

	switch (number) {
	case SIGWINCH:
		if (top->screen.open)
			nt_screen_resized(&top->screen);
		break;
	case SIGTSTP:
		stop_for_a_while(top);
		break;
	case SIGCONT: /* it may follow a SIGSTOP, which nobody can catch */
		nt_screen_resume(&top->screen);
		break;
	default:
		top->stop = true;
	}
	top->redraw = true;
}

static int watch_signals(struct top *top)
{
	const uint64_t ends =
		NT_SIGNAL(SIGINT) | NT_SIGNAL(SIGTERM) | NT_SIGNAL(SIGHUP) | NT_SIGNAL(SIGQUIT);
	const uint64_t others = NT_SIGNAL(SIGTSTP) | NT_SIGNAL(SIGWINCH) | NT_SIGNAL(SIGCONT);

	/* a blocked signal still arrives; ncurses would take it, and discard it as it draws */
	signal(SIGTSTP, SIG_IGN);
	return nt_loop_signals(top->loop, ends, others, on_signal, top);
}

static void on_keys(void *context, uint32_t what)
{
	struct top *top = context;

	top->pressed |= what & EPOLLIN;
	if (what & (EPOLLHUP | EPOLLERR))
		top->stop = true; /* the terminal is gone */
}

/* A key acts on the rows as they are after this turn's news, which have moved them. */
static void take_keys(struct top *top)
{
	int key;

	while (top->pressed && !top->model.quit && (key = nt_screen_key(&top->screen)) >= 0) {
		nt_top_key(&top->model, key);
		top->redraw = true;
	}
	top->pressed = false;
}

/* Draws the page that is open. */
static void draw(struct top *top)
{
	struct nt_screen *screen = &top->screen;

	top->about.trouble = top->trace ? top->trace->trouble : top->daemon.trouble;
	nt_screen_begin(screen);
	switch (top->model.page) {
	case NT_TOP_DETAIL:
		nt_top_draw_detail(screen, &top->model, &top->about);
		break;
	case NT_TOP_HELP:
		nt_top_draw_help(screen);
		break;
	default:
		nt_top_draw_table(screen, &top->model, &top->about);
	}
	nt_screen_end(screen);
}

/* Returns when the next turn has something to do, whatever else comes. */
static uint64_t next_ns(const struct top *top)
{
	uint64_t source_ns = top->trace ? top->trace->next_ns : top->daemon.next_ns;

	return top->end_ns && top->end_ns < source_ns ? top->end_ns : source_ns;
}

/* Takes the screen once there is data to show; an error before that is a line on stderr. */
static enum nt_exit open_screen(struct top *top)
{
	struct nt_error error;
	int cause;

	if (top->screen.open || !top->model.live.any)
		return NT_EXIT_OK;
	if (!nt_screen_open(&top->screen, &error))
		return nt_error_log(&error);
	cause = nt_loop_watch(top->loop, STDIN_FILENO, EPOLLIN, on_keys, top);
	if (!cause)
		return NT_EXIT_OK;
	nt_screen_close(&top->screen);
	nt_log("cannot wait for keys: %s", strerror(-cause));
	return NT_EXIT_FAILED;
}

/* Waits, and handles what has come. */
static enum nt_exit turn(struct top *top)
{
	enum nt_exit code;
	bool news;
	int cause;

	top->redraw = false;
	cause = nt_loop_turn(top->loop, next_ns(top));
	if (cause) {
		nt_log("cannot wait for events: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	news = top->trace ? nt_top_own_turn(top->trace, nt_now_ns())
			  : nt_top_daemon_turn(&top->daemon, nt_now_ns());
	if (!top->trace && top->daemon.failed) {
		nt_log("%s", top->daemon.why);
		return NT_EXIT_FAILED;
	}
	code = open_screen(top);
	if (code)
		return code;
	if (news)
		nt_top_update(&top->model);
	take_keys(top);
	if ((news || top->redraw) && top->screen.open)
		draw(top);
	if (top->model.quit || (top->end_ns && nt_now_ns() >= top->end_ns))
		top->stop = true;
	return NT_EXIT_OK;
}

static bool trace_here(struct top *top, uint64_t interval_ns, struct nt_error *error)
{
	top->trace = calloc(1, sizeof(*top->trace));
	return nt_started(top->trace ? 0 : -ENOMEM, error) &&
	       nt_top_own_open(top->trace, top->settings, top->loop, interval_ns, &top->model.live,
			       error);
}

/* Reads the daemon, or traces here if none answers or the user asks for it. */
static bool open_source(struct top *top, uint64_t interval_ns, struct nt_error *error)
{
	struct nt_error unreached;
	int err;

	if (top->settings->traces_itself)
		return trace_here(top, interval_ns, error);
	err = nt_top_daemon_open(&top->daemon, top->settings->socket, top->loop, interval_ns,
				 &top->model.live, nt_now_ns());
	if (!err)
		return true;
	nt_client_explain(top->settings->socket, -err, &unreached);
	if (trace_here(top, interval_ns, error))
		return true;
	if (error->exit == NT_EXIT_PERMISSION)
		nt_error_set(error, NT_EXIT_PERMISSION,
			     "%.400s; or run this as root, to trace here", unreached.text);
	return false;
}

static void close_source(struct top *top)
{
	nt_top_daemon_close(&top->daemon);
	if (top->trace)
		nt_top_own_close(top->trace);
	free(top->trace);
}

static enum nt_exit run(struct top *top)
{
	uint64_t interval_ns =
		top->settings->interval_ns ? top->settings->interval_ns : DEFAULT_INTERVAL_NS;
	enum nt_exit code = NT_EXIT_OK;
	struct nt_error error;
	int cause;

	nt_top_model_init(&top->model, interval_ns);
	if (!open_source(top, interval_ns, &error))
		return nt_error_log(&error);
	cause = watch_signals(top);
	if (cause < 0) {
		nt_log("cannot watch signals: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	top->about.own = top->trace;
	if (top->settings->duration_ns)
		top->end_ns = nt_now_ns() + top->settings->duration_ns;
	while (!code && !top->stop)
		code = turn(top);
	return code;
}

static void name_host(struct nt_top_about *about)
{
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	nt_escape(host, strcspn(host, "."), about->host, sizeof(about->host));
}

enum nt_exit nt_top(const struct nt_settings *settings)
{
	struct top top = {.settings = settings, .daemon = {.fd = -1}};
	enum nt_exit code;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		nt_log("top: needs a terminal; give it one (`ssh -t`), or use `nagletrace "
		       "report` or `nagletrace -i 5s`");
		return NT_EXIT_USAGE;
	}
	top.loop = nt_loop_new();
	if (!top.loop)
		return NT_EXIT_FAILED;
	name_host(&top.about);
	code = run(&top);
	nt_screen_close(&top.screen);
	close_source(&top);
	nt_top_model_free(&top.model);
	nt_loop_free(top.loop);
	return code;
}
