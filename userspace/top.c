// SPDX-License-Identifier: GPL-2.0
#include "top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clock.h"
#include "session.h"
#include "text.h"
#include "top_keys.h"
#include "top_source.h"
#include "top_table.h"

#define DEFAULT_INTERVAL_NS NT_SECOND_NS

struct top {
	const struct nt_options *opts;
	struct nt_top_source source;
	struct nt_top_model model;
	struct nt_screen screen;
	struct nt_top_about about;
	uint64_t end_ns; /* of --duration; 0: none */
	int signals;
	bool stop;
};

enum {
	FD_KEYS,
	FD_SIGNALS,
	FD_SOURCE,
	N_FDS
};

static int watch_signals(struct top *top)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	/* blocked, it comes all the same; else ncurses would take it, and discard it as it draws */
	signal(SIGTSTP, SIG_IGN);
	top->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return top->signals < 0 ? -errno : 0;
}

/*
 * Stopped as the shell expects it: the terminal is given back for that time. The default action of
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
	sigprocmask(SIG_UNBLOCK, &set, NULL); /* stops here */
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGTSTP, SIG_IGN);
	nt_screen_resume(&top->screen);
}

/* True: the screen is to be drawn anew. */
static bool take_signals(struct top *top)
{
	struct signalfd_siginfo info;
	bool draw = false;

	while (read(top->signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGWINCH:
			if (top->screen.open)
				nt_screen_resized(&top->screen);
			break;
		case SIGTSTP:
			stop_for_a_while(top);
			break;
		case SIGCONT: /* also after a SIGSTOP that nobody could see coming */
			nt_screen_resume(&top->screen);
			break;
		default:
			top->stop = true;
		}
		draw = true;
	}
	return draw;
}

static bool take_keys(struct top *top)
{
	bool draw = false;
	int key;

	while (!top->model.quit && (key = nt_screen_key(&top->screen)) >= 0) {
		nt_top_key(&top->model, key);
		draw = true;
	}
	return draw;
}

static void draw(struct top *top)
{
	top->about.trouble = nt_top_source_trouble(&top->source);
	nt_top_draw(&top->screen, &top->model, &top->about);
}

/* How long to wait for what happens, in ms. */
static int patience_ms(const struct top *top, uint64_t now_ns)
{
	uint64_t next_ns = nt_top_source_next_ns(&top->source);

	if (top->end_ns && top->end_ns < next_ns)
		next_ns = top->end_ns;
	return next_ns > now_ns ? (next_ns - now_ns + 999999) / 1000000 : 0;
}

/* Once the first state is told, the screen is taken: what goes wrong before is a line on stderr. */
static enum nt_exit open_screen(struct top *top)
{
	char err[256];

	if (top->screen.open || !top->model.live.any)
		return NT_EXIT_OK;
	if (!nt_screen_open(&top->screen, err, sizeof(err)))
		return NT_EXIT_OK;
	nt_complain("%s", err);
	return NT_EXIT_USAGE;
}

/* One round of the loop: waits, and handles what there is. */
static enum nt_exit turn(struct top *top)
{
	struct pollfd fds[N_FDS] = {
		[FD_KEYS] = {.fd = top->screen.open ? STDIN_FILENO : -1, .events = POLLIN},
		[FD_SIGNALS] = {.fd = top->signals, .events = POLLIN},
		[FD_SOURCE] = {.fd = nt_top_source_fd(&top->source), .events = POLLIN},
	};
	enum nt_exit code;
	const char *err;
	bool news, redraw = false;

	if (poll(fds, N_FDS, patience_ms(top, nt_now_ns())) < 0 && errno != EINTR) {
		nt_complain("cannot wait for events: %s", strerror(errno));
		return NT_EXIT_FAILED;
	}
	if (fds[FD_SIGNALS].revents)
		redraw = take_signals(top);
	if (fds[FD_KEYS].revents & POLLIN)
		redraw |= take_keys(top);
	if (fds[FD_KEYS].revents & (POLLHUP | POLLERR | POLLNVAL))
		top->stop = true; /* nobody looks any more */
	news = nt_top_source_turn(&top->source, fds[FD_SOURCE].revents, nt_now_ns());
	code = nt_top_source_failure(&top->source, &err);
	if (code) {
		nt_complain("%s", err);
		return code;
	}
	code = open_screen(top);
	if (code)
		return code;
	if (news)
		nt_top_update(&top->model);
	if ((news || redraw) && top->screen.open)
		draw(top);
	if (top->model.quit || (top->end_ns && nt_now_ns() >= top->end_ns))
		top->stop = true;
	return NT_EXIT_OK;
}

static enum nt_exit run(struct top *top)
{
	uint64_t interval_ns =
		top->opts->interval_ns ? top->opts->interval_ns : DEFAULT_INTERVAL_NS;
	enum nt_exit code;
	char err[512];
	int cause = watch_signals(top);

	if (cause) {
		nt_complain("cannot watch signals: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	nt_top_model_init(&top->model, interval_ns);
	code = nt_top_source_open(&top->source, top->opts, interval_ns, &top->model.live, err,
				  sizeof(err));
	if (code) {
		nt_complain("%s", err);
		return code;
	}
	top->about.own = top->source.own;
	if (top->opts->duration_ns)
		top->end_ns = nt_now_ns() + top->opts->duration_ns;
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

enum nt_exit nt_top(const struct nt_options *opts)
{
	struct top top = {.opts = opts, .signals = -1, .source = {.daemon = {.fd = -1}}};
	enum nt_exit code;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		nt_complain("top: needs a terminal; give it one (`ssh -t`), or use `nagletrace "
			    "report` or `nagletrace -i 5s`");
		return NT_EXIT_USAGE;
	}
	name_host(&top.about);
	code = run(&top);
	nt_screen_close(&top.screen);
	nt_top_source_close(&top.source);
	nt_top_model_free(&top.model);
	if (top.signals >= 0)
		close(top.signals);
	return code;
}
