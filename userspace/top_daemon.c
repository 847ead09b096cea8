// SPDX-License-Identifier: GPL-2.0
#include "top_daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "clock.h"
#include "top_feed.h"

#define RETRY_NS    NT_SECOND_NS
#define PATIENCE_NS (3 * NT_SECOND_NS) /* then the screen says that no answer comes */
#define GIVE_UP_NS  (NT_CLIENT_PATIENCE_S * NT_SECOND_NS)
#define CHUNK_BYTES 65536
#define TURN_BYTES  (4 * CHUNK_BYTES) /* read at once; then keys have their turn */
#define LINE_BYTES  (32UL << 20)      /* of a snapshot with stacks, at most */

static void disconnect(struct nt_top_daemon *daemon)
{
	if (daemon->fd >= 0)
		close(daemon->fd);
	daemon->fd = -1;
	daemon->length = 0;
	daemon->asked_ns = 0;
}

static unsigned int seconds(uint64_t ns)
{
	return ns / NT_SECOND_NS;
}

static void tell_trouble(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	snprintf(daemon->trouble, sizeof(daemon->trouble), "state of %us ago, asking again: %s",
		 seconds(now_ns - daemon->lost_ns), daemon->why);
}

/* The daemon is lost, for the reason in why. What was told stays. */
static void lose(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	disconnect(daemon);
	nt_top_rates_break(&daemon->data->rates);
	daemon->next_ns = now_ns + RETRY_NS;
	if (!daemon->lost_ns)
		daemon->lost_ns = now_ns;
	if (!daemon->data->any)
		daemon->failure = NT_EXIT_FAILED;
	tell_trouble(daemon, now_ns);
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

/* Stalls come on the same connection as snapshots: a snapshot has all stalls that came before it.
 */
static int connect_and_ask(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	int err;

	daemon->fd = nt_client_connect(daemon->path, false);
	if (daemon->fd < 0) {
		err = daemon->fd;
		daemon->fd = -1;
		return err;
	}
	err = nt_client_ask(daemon->fd, "\"request\":\"stream\",\"format\":\"json\"");
	if (!err)
		err = ask_snapshot(daemon, now_ns);
	if (err)
		disconnect(daemon);
	return err;
}

int nt_top_daemon_open(struct nt_top_daemon *daemon, const char *path, uint64_t interval_ns,
		       struct nt_top_data *data, uint64_t now_ns)
{
	memset(daemon, 0, sizeof(*daemon));
	daemon->path = path;
	daemon->data = data;
	daemon->interval_ns = interval_ns;
	return connect_and_ask(daemon, now_ns);
}

void nt_top_daemon_close(struct nt_top_daemon *daemon)
{
	disconnect(daemon);
	free(daemon->line);
	daemon->line = NULL;
	daemon->room = 0;
}

/* True: there is something new to show. */
static bool take_line(struct nt_top_daemon *daemon, const char *line, size_t length,
		      uint64_t now_ns)
{
	char err[256];

	switch (nt_top_feed_line(daemon->data, line, length, now_ns, err, sizeof(err))) {
	case NT_TOP_FED_SNAPSHOT:
		daemon->asked_ns = 0;
		daemon->lost_ns = 0;
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
	char *from = daemon->line, *end;

	while (daemon->fd >= 0 &&
	       (end = memchr(from, '\n', daemon->line + daemon->length - from))) {
		*end = '\0';
		news |= take_line(daemon, from, end - from, now_ns);
		from = end + 1;
	}
	if (daemon->fd < 0)
		return news;
	daemon->length -= from - daemon->line;
	memmove(daemon->line, from, daemon->length);
	return news;
}

static bool make_room(struct nt_top_daemon *daemon)
{
	size_t room = daemon->room ? 2 * daemon->room : 4 * CHUNK_BYTES;
	char *more;

	if (daemon->length + CHUNK_BYTES <= daemon->room)
		return true;
	if (room > 2 * LINE_BYTES)
		return false;
	more = realloc(daemon->line, room);
	if (!more)
		return false;
	daemon->line = more;
	daemon->room = room;
	return true;
}

bool nt_top_daemon_read(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	size_t before = 0;
	bool news = false;

	for (size_t all = 0; daemon->fd >= 0 && all < TURN_BYTES; all += before) {
		ssize_t n;

		if (!make_room(daemon)) {
			lose_for(daemon, "the daemon's answer has no end", now_ns);
			return true;
		}
		n = recv(daemon->fd, daemon->line + daemon->length, CHUNK_BYTES, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return news;
		if (n <= 0) {
			lose_for(daemon, n ? strerror(errno) : "the daemon has ended", now_ns);
			return true;
		}
		before = n;
		daemon->length += n;
		news |= take_lines(daemon, now_ns);
	}
	return news;
}

static bool reconnect(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	int err = connect_and_ask(daemon, now_ns);

	if (!err)
		return false;
	if (err != -ENOENT && err != -ECONNREFUSED) /* else it has ended, which why says */
		nt_client_explain(daemon->path, -err, daemon->why, sizeof(daemon->why));
	lose(daemon, now_ns);
	return true;
}

bool nt_top_daemon_turn(struct nt_top_daemon *daemon, uint64_t now_ns)
{
	if (daemon->asked_ns && now_ns > daemon->asked_ns + GIVE_UP_NS) {
		nt_client_explain(daemon->path, EAGAIN, daemon->why, sizeof(daemon->why));
		lose(daemon, now_ns);
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
