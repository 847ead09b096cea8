// SPDX-License-Identifier: GPL-2.0
#include "top/remote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "protocol/client.h"
#include "base/clock.h"
#include "base/loop.h"
#include "top/feed.h"

#define RETRY_NS    NT_SECOND_NS
#define PATIENCE_NS (3 * NT_SECOND_NS) /* then the screen reports that no answer comes */
#define GIVE_UP_NS  (NT_CLIENT_PATIENCE_S * NT_SECOND_NS)
#define TURN_READS  4 /* reads of 64 KiB; then keys have their turn */

static void disconnect(struct nt_top_daemon *daemon)
{
	if (daemon->fd >= 0) {
		nt_loop_forget(daemon->loop, daemon->fd);
		close(daemon->fd);
	}
	daemon->fd = -1;
	daemon->asked_ns = 0;
	nt_answers_close(&daemon->answers);
}

static unsigned int seconds(uint64_t ns)
{
	return ns / NT_SECOND_NS;
}

static void show_trouble(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	snprintf(daemon->trouble, sizeof(daemon->trouble), "state of %us ago, asking again: %s",
		 seconds(now_ns - daemon->gone_ns), daemon->why);
}

/* Notes that the daemon is gone, with the reason in why. The data stays. */
static void lose(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	disconnect(daemon);
	nt_top_rates_break(&daemon->data->rates);
	daemon->next_ns = now_ns + RETRY_NS;
	if (!daemon->gone_ns)
		daemon->gone_ns = now_ns;
	if (!daemon->data->any)
		daemon->failed = true;
	show_trouble(daemon, now_ns);
}

static void lose_for(struct nt_top_daemon *daemon, const char *why, uint64_t now_ns)
{
	snprintf(daemon->why, sizeof(daemon->why), "%s", why);
	lose(daemon, now_ns);
}

static int ask_snapshot(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	int err = nt_client_ask(daemon->fd, "\"request\":\"snapshot\",\"top\":%d", NT_TOP_ROWS);

	if (!err) {
		daemon->asked_ns = now_ns;
		daemon->next_ns = now_ns + daemon->interval_ns;
	}
	return err;
}

/* Takes one line. Returns true if there is something new to show. */
static bool take_line(struct nt_top_daemon *daemon, char *line, size_t length, uint64_t now_ns)
{
	char err[sizeof(daemon->why)];

	switch (nt_top_feed_line(daemon->data, line, length, now_ns, err, sizeof(err))) {
	case NT_TOP_FED_SNAPSHOT:
		daemon->asked_ns = 0;
		daemon->gone_ns = 0;
		daemon->trouble[0] = '\0';
		return true;
	case NT_TOP_FED_WRONG:
		lose_for(daemon, err, now_ns);
		return true;
	default:
		return false;
	}
}

static bool take_lines(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	bool news = false;
	size_t length;
	char *line;

	while (daemon->fd >= 0 && (line = nt_answers_line(&daemon->answers, &length)))
		news |= take_line(daemon, line, length, now_ns);
	return news;
}

/* Reads what has come, or a part if it is much. Returns true if there is something new to show. */
static bool read_some(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	bool news = false;
	int came = 1;

	for (unsigned int n = 0; came > 0 && daemon->fd >= 0 && n < TURN_READS; n++) {
		came = nt_answers_read(&daemon->answers);
		if (came > 0)
			news |= take_lines(daemon, now_ns);
	}
	if (came >= 0)
		return news;
	if (came == -ENODATA)
		lose_for(daemon, "the daemon has ended", now_ns);
	else if (came == -EMSGSIZE)
		lose_for(daemon,
			 "the daemon's answer is longer than 32 MiB; start `nagletrace daemon` "
			 "with a smaller --max-series",
			 now_ns);
	else
		lose_for(daemon, strerror(-came), now_ns);
	return true;
}

static void on_answers(void *context, uint32_t what)
{
	struct nt_top_daemon *daemon = context;

	daemon->news |= read_some(daemon, nt_now_ns());
}

/* Stalls and snapshots share one connection, so a snapshot covers all stalls that came before
 * it. */
static int connect_and_ask(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	int err;

	daemon->fd = nt_client_connect(daemon->path, false);
	if (daemon->fd < 0) {
		err = daemon->fd;
		daemon->fd = -1;
		return err;
	}
	nt_answers_open(&daemon->answers, daemon->fd);
	err = nt_loop_watch(daemon->loop, daemon->fd, EPOLLIN, on_answers, daemon);
	if (!err)
		err = nt_client_ask(daemon->fd, "\"request\":\"stream\",\"format\":\"json\"");
	if (!err)
		err = ask_snapshot(daemon, now_ns);
	if (err)
		disconnect(daemon);
	return err;
}

int nt_top_daemon_open(struct nt_top_daemon *daemon, const char *path, struct nt_loop *loop,
		       uint64_t interval_ns, struct nt_top_data *data, uint64_t now_ns)
{
	memset(daemon, 0, sizeof(*daemon));
	daemon->path = path;
	daemon->loop = loop;
	daemon->fd = -1;
	daemon->data = data;
	daemon->interval_ns = interval_ns;
	return connect_and_ask(daemon, now_ns);
}

void nt_top_daemon_close(struct nt_top_daemon *daemon)
{
	disconnect(daemon);
}

static void lose_by(struct nt_top_daemon *daemon, int err, uint64_t now_ns)
{
	struct nt_error error;

	nt_client_explain(daemon->path, err, &error);
	lose_for(daemon, error.text, now_ns);
}

static bool reconnect(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	int err = connect_and_ask(daemon, now_ns);

	if (!err)
		return false;
	if (err == -ENOENT || err == -ECONNREFUSED)
		lose(daemon, now_ns); /* it has ended, as why says */
	else
		lose_by(daemon, -err, now_ns);
	return true;
}

/* Does what is due. Returns true if there is something new to show. */
static bool do_what_is_due(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	if (daemon->asked_ns && now_ns > daemon->asked_ns + GIVE_UP_NS) {
		lose_by(daemon, EAGAIN, now_ns);
		return true;
	}
	if (now_ns < daemon->next_ns)
		return false;
	if (daemon->fd < 0)
		return reconnect(daemon, now_ns);
	if (!daemon->asked_ns) {
		if (ask_snapshot(daemon, now_ns))
			daemon->next_ns = now_ns + RETRY_NS;
		return false;
	}
	daemon->next_ns = now_ns + RETRY_NS;
	if (now_ns < daemon->asked_ns + PATIENCE_NS)
		return false;
	snprintf(daemon->trouble, sizeof(daemon->trouble),
		 "the daemon has not answered for %us; its last state is shown",
		 seconds(now_ns - daemon->asked_ns));
	return true;
}

bool nt_top_daemon_turn(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	bool news = do_what_is_due(daemon, now_ns) || daemon->news;

	daemon->news = false;
	return news;
}
