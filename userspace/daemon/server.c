// SPDX-License-Identifier: GPL-2.0
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <json-c/json.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/text.h"

/* A reader with this much unread gets no more stalls, nor answers, until it has read. */
#define BACKLOG_BYTES (256 * 1024)

/* The most memory that may wait for one user, and for all users but root and the daemon's own;
 * these two together may have as much as all others. Each bound may be exceeded by one answer. */
#define USER_BACKLOG_BYTES (4 << 20)
#define ALL_BACKLOG_BYTES  (16 << 20)

/* Rendering for one reader must not keep the daemon from consuming records. */
#define STREAMED_PER_SECOND 5000

/* How long one reader with many requests is served before the others have their turn. */
#define TURN_NS (NT_SECOND_NS / 1000)

/* The new connections that the kernel queues; one more nonblocking connect() fails. */
#define BACKLOG_READERS (4 * NT_MAX_READERS)

/* The most that the daemon accepts at once: connecting in a loop would keep it busy. */
#define TURN_READERS 16

/* The most refused readers whose first request the daemon waits for; each costs a descriptor. */
#define MAX_REFUSED 64

/* The pieces of a refused request that it reads and discards: more than a socket holds. */
#define MAX_UNREAD 64

/* It complains of missing descriptors at most once in this time. */
#define COMPLAIN_EACH_NS (60 * NT_SECOND_NS)

/* It sends away a silent reader, and one that reads nothing of what waits for it. */
static const struct timeval silence = {.tv_sec = 120}, stuck = {.tv_sec = 30};

/* accept() fails repeatedly while there are no descriptors, until somebody closes one. */
static const struct timeval without_descriptors = {.tv_usec = 100000};

/* How long a refused reader has to send its first request. */
static const struct timeval until_asked = {.tv_sec = 1};

static const struct timeval at_once;

struct nt_reader {
	LIST_ENTRY(nt_reader) entry;
	struct nt_server *server;
	struct bufferevent *io;
	struct event *turn; /* continues with the requests that are left */
	uid_t uid;
	bool streaming;
	bool leaving; /* it sends nothing more; it still gets the answers that it asked for */
	enum nt_format format;
	bool has_room;                           /* for the current stall */
	uint64_t skipped_stalls, skipped_others; /* since the last note to the reader */
	uint64_t second;                         /* the second to which budget belongs */
	unsigned int budget;
};

struct nt_server {
	struct event_base *base;
	struct nt_loop *loop; /* of the caller */
	int err;              /* -errno of its last turn */
	struct evconnlistener *listener;
	LIST_HEAD(, nt_reader) readers;
	nt_answer *answer;
	void *context;
	uid_t own_uid;
	struct nt_server_counts counts;
	struct event *resume;   /* accepting, after a pause */
	unsigned int accepted;  /* since the last one */
	unsigned int refused;   /* refused connections whose first request is still to come */
	uint64_t complained_ns; /* when it last complained of missing descriptors */
	struct sockaddr_un addr;
	bool bound;
	struct stat bound_as;
};

static size_t waiting(const struct nt_reader *reader)
{
	return evbuffer_get_length(bufferevent_get_output(reader->io));
}

static void forget(struct nt_reader *reader)
{
	struct nt_server *server = reader->server;

	LIST_REMOVE(reader, entry);
	server->counts.readers--;
	server->counts.streaming -= reader->streaming;
	event_free(reader->turn);
	bufferevent_free(reader->io);
	free(reader);
}

static void send_away(struct nt_reader *reader)
{
	reader->server->counts.dropped++;
	forget(reader);
}

void nt_reader_send(struct nt_reader *reader, const char *lines, size_t length)
{
	bufferevent_write(reader->io, lines, length);
}

/* Makes {"type":…,"protocol":…} with one more key, whose value is text or a number. */
static struct json_object *new_note(const char *type, const char *key, struct json_object *value)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "type", json_object_new_string(type));
	json_object_object_add(o, "protocol", json_object_new_int(NT_PROTOCOL));
	json_object_object_add(o, key, value);
	return o;
}

/* Puts the note once it is sent. */
static void send_note(struct nt_reader *reader, struct json_object *note)
{
	const char *line = json_object_to_json_string_ext(note, JSON_C_TO_STRING_PLAIN);

	nt_reader_send(reader, line, strlen(line));
	nt_reader_send(reader, "\n", 1);
	json_object_put(note);
}

/* May the reader get one more record this second? Counts it. */
static bool take_from_budget(struct nt_reader *reader)
{
	uint64_t second = nt_now_ns() / NT_SECOND_NS;

	if (reader->second != second) {
		reader->second = second;
		reader->budget = STREAMED_PER_SECOND;
	}
	if (!reader->budget)
		return false;
	reader->budget--;
	return true;
}

/* Reports to a reader what it missed, as soon as it has room again. */
static void report_skipped(struct nt_reader *reader)
{
	struct json_object *note;

	if (!(reader->skipped_stalls || reader->skipped_others) || waiting(reader) > BACKLOG_BYTES)
		return;
	note = new_note("skipped", "stalls", json_object_new_uint64(reader->skipped_stalls));
	json_object_object_add(note, "others", json_object_new_uint64(reader->skipped_others));
	send_note(reader, note);
	reader->skipped_stalls = 0;
	reader->skipped_others = 0;
}

void nt_server_report_skipped(struct nt_server *server)
{
	struct nt_reader *reader;

	LIST_FOREACH(reader, &server->readers, entry)
	report_skipped(reader);
}

void nt_reader_stream(struct nt_reader *reader, enum nt_format format)
{
	if (!reader->streaming)
		reader->server->counts.streaming++;
	reader->streaming = true;
	reader->format = format;
}

bool nt_server_streams(const struct nt_server *server, enum nt_format format)
{
	const struct nt_reader *reader;

	LIST_FOREACH(reader, &server->readers, entry)
	if (reader->streaming && reader->format == format)
		return true;
	return false;
}

bool nt_server_wants(struct nt_server *server, enum nt_format format, bool is_stall)
{
	struct nt_reader *reader;
	bool any = false;

	LIST_FOREACH(reader, &server->readers, entry)
	{
		if (!reader->streaming || reader->format != format)
			continue;
		reader->has_room = waiting(reader) <= BACKLOG_BYTES && take_from_budget(reader);
		any |= reader->has_room;
		if (reader->has_room)
			continue;
		reader->skipped_stalls += is_stall;
		reader->skipped_others += !is_stall;
		server->counts.skipped += is_stall;
	}
	return any;
}

void nt_server_stream(struct nt_server *server, enum nt_format format, const char *line,
		      size_t length)
{
	struct nt_reader *reader;

	LIST_FOREACH(reader, &server->readers, entry)
	{
		if (!reader->streaming || reader->format != format || !reader->has_room)
			continue;
		report_skipped(reader);
		nt_reader_send(reader, line, length);
	}
}

/* ---- shares ---- */

/* Root and the daemon's own user have no share: either can end the daemon anyway. */
static bool has_no_share(const struct nt_server *server, uid_t uid)
{
	return !uid || uid == server->own_uid;
}

/* Returns the share that is used up, the user's or that of all; NT_REFUSALS: neither. */
static enum nt_refusal no_room_for(const struct nt_server *server, uid_t uid)
{
	const bool apart = has_no_share(server, uid);
	const struct nt_reader *reader;
	unsigned int user = 0, users = 0;

	LIST_FOREACH(reader, &server->readers, entry)
	{
		user += reader->uid == uid;
		users += !has_no_share(server, reader->uid);
	}
	if (!apart && user >= NT_USER_READERS)
		return NT_REFUSED_USER_READERS;
	if (!apart && users >= NT_ALL_USERS_READERS)
		return NT_REFUSED_ALL_READERS;
	return server->counts.readers < NT_MAX_READERS ? NT_REFUSALS : NT_REFUSED_ALL_READERS;
}

/* Checks the bytes that wait in the same way. */
static enum nt_refusal too_much_waits_for(const struct nt_reader *who)
{
	const struct nt_server *server = who->server;
	const bool apart = has_no_share(server, who->uid);
	const struct nt_reader *reader;
	size_t user = 0, all = 0;

	LIST_FOREACH(reader, &server->readers, entry)
	{
		user += reader->uid == who->uid ? waiting(reader) : 0;
		all += has_no_share(server, reader->uid) == apart ? waiting(reader) : 0;
	}
	if (!apart && user > USER_BACKLOG_BYTES)
		return NT_REFUSED_USER_WAITING;
	return all > ALL_BACKLOG_BYTES ? NT_REFUSED_ALL_WAITING : NT_REFUSALS;
}

/* Makes one line that names the missing resource and the remedy. */
static struct json_object *refusal(const struct nt_server *server, enum nt_refusal why, uid_t uid)
{
	const bool apart = has_no_share(server, uid);
	char text[NT_REQUEST_TEXT];

	switch (why) {
	case NT_REFUSED_USER_READERS:
		snprintf(text, sizeof(text),
			 "user %u has %u connections, as many as one user may; end one of them "
			 "(`nagletrace top` and `report -f` keep one each), or ask again later",
			 uid, NT_USER_READERS);
		break;
	case NT_REFUSED_ALL_READERS:
		snprintf(text, sizeof(text),
			 "all %u connections that there are for %s are taken; ask again later%s",
			 apart ? NT_MAX_READERS : NT_ALL_USERS_READERS, apart ? "anybody" : "users",
			 apart ? "" : ", or as root");
		break;
	default:
		snprintf(text, sizeof(text),
			 "too much output is queued for slow readers; ask again later");
	}
	return json_object_new_string(text);
}

/* ---- requests ---- */

static void take_line(struct nt_reader *reader, const char *line, size_t length)
{
	enum nt_refusal why = too_much_waits_for(reader);
	struct nt_server *server = reader->server;
	struct nt_request request;
	char err[NT_REQUEST_TEXT];

	if (why != NT_REFUSALS) {
		server->counts.refused++;
		server->counts.refusals[why]++;
		send_note(reader, new_note("error", "error", refusal(server, why, reader->uid)));
		return;
	}
	if (nt_request_parse(line, length, &request, err, sizeof(err))) {
		server->counts.refused++;
		send_note(reader, new_note("error", "error", json_object_new_string(err)));
		return;
	}
	server->counts.requests++;
	server->answer(server->context, reader, &request);
}

/* Sends a reader away whose line is longer than any request. */
static void refuse_length(struct nt_reader *reader)
{
	reader->server->counts.refused++;
	send_away(reader);
}

/* Handles complete requests, as long as the reader takes its answers. */
static void take_lines(struct nt_reader *reader)
{
	struct evbuffer *in = bufferevent_get_input(reader->io);
	uint64_t began_ns = nt_now_ns();
	bool room = true;

	while (room) {
		size_t length;
		char *line = evbuffer_readln(in, &length, EVBUFFER_EOL_LF);

		if (!line)
			break;
		if (length >= NT_REQUEST_MAX) {
			free(line);
			refuse_length(reader);
			return;
		}
		take_line(reader, line, length);
		room = waiting(reader) <= BACKLOG_BYTES;
		free(line);
		if (room && nt_now_ns() > began_ns + TURN_NS) {
			/* handle later input, and the end of input, after these requests */
			bufferevent_disable(reader->io, EV_READ);
			event_add(reader->turn, &at_once);
			return;
		}
	}
	if (!room) {
		bufferevent_disable(reader->io, EV_READ);
		return;
	}
	if (evbuffer_get_length(in) < NT_REQUEST_MAX)
		return;
	refuse_length(reader);
}

static void on_input(struct bufferevent *io, void *context)
{
	take_lines(context);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct nt_reader *reader = context;

	bufferevent_enable(reader->io, EV_READ);
	take_lines(reader);
}

/* Goes on once the reader has taken all that waited. */
static void on_drained(struct bufferevent *io, void *context)
{
	struct nt_reader *reader = context;

	if (reader->leaving) {
		forget(reader);
		return;
	}
	report_skipped(reader);
	if (bufferevent_get_enabled(io) & EV_READ)
		return;
	bufferevent_enable(io, EV_READ);
	take_lines(reader);
}

/* The reader has sent its last request and still waits for the answer. */
static void leave_when_drained(struct nt_reader *reader)
{
	reader->leaving = true;
	reader->server->counts.streaming -= reader->streaming;
	reader->streaming = false;
}

static void on_change(struct bufferevent *io, short what, void *context)
{
	struct nt_reader *reader = context;

	if (what & BEV_EVENT_TIMEOUT && what & BEV_EVENT_READING && reader->streaming) {
		bufferevent_enable(io, EV_READ); /* a streaming reader may stay silent */
		return;
	}
	if (what & BEV_EVENT_TIMEOUT)
		send_away(reader);
	else if (what & BEV_EVENT_EOF && waiting(reader))
		leave_when_drained(reader);
	else
		forget(reader);
}

/* ---- connections ---- */

/* Closes a refused connection once its request has come or the time is up: a reader that is still
 * writing would get an error, and not the answer. */
static void on_refused_asked(evutil_socket_t fd, short what, void *context)
{
	struct nt_server *server = context;
	char request[NT_REQUEST_MAX];

	/* unread data would reset the connection, perhaps before the reader has the answer */
	for (int n = 0; n < MAX_UNREAD && recv(fd, request, sizeof(request), MSG_DONTWAIT) > 0; n++)
		;
	server->refused--;
	close(fd);
}

/* Sends the reason and closes the connection, after its first request unless too many wait for
 * that. */
static void refuse_reader(struct nt_server *server, evutil_socket_t fd, enum nt_refusal why,
			  uid_t uid)
{
	struct json_object *o = new_note("error", "error", refusal(server, why, uid));
	char line[2 * NT_REQUEST_TEXT];
	int n = snprintf(line, sizeof(line), "%s\n",
			 json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));

	json_object_put(o);
	server->counts.dropped++;
	server->counts.refusals[why]++;
	if (send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) != n || server->refused == MAX_REFUSED ||
	    event_base_once(server->base, fd, EV_READ, on_refused_asked, server, &until_asked))
		close(fd);
	else
		server->refused++;
}

static struct nt_reader *new_reader(struct nt_server *server, evutil_socket_t fd, uid_t uid)
{
	struct nt_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return NULL;
	reader->server = server;
	reader->uid = uid;
	reader->turn = event_new(server->base, -1, 0, on_turn, reader);
	if (reader->turn)
		reader->io = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (reader->io)
		return reader;
	if (reader->turn)
		event_free(reader->turn);
	free(reader);
	return NULL;
}

static void pause_accepting(struct nt_server *server, const struct timeval *pause)
{
	server->accepted = 0;
	evconnlistener_disable(server->listener);
	event_add(server->resume, pause);
}

static void on_connect(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *addr,
		       int length, void *context)
{
	struct nt_server *server = context;
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof(peer);
	struct nt_reader *reader;
	enum nt_refusal why;

	if (++server->accepted == TURN_READERS)
		pause_accepting(server, &at_once);
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	why = no_room_for(server, peer.uid);
	if (why != NT_REFUSALS) {
		refuse_reader(server, fd, why, peer.uid);
		return;
	}
	reader = new_reader(server, fd, peer.uid);
	if (!reader) {
		server->counts.dropped++;
		close(fd);
		return;
	}
	LIST_INSERT_HEAD(&server->readers, reader, entry);
	server->counts.readers++;
	bufferevent_setcb(reader->io, on_input, on_drained, on_change, reader);
	bufferevent_setwatermark(reader->io, EV_READ, 0, 2 * NT_REQUEST_MAX);
	bufferevent_set_timeouts(reader->io, &silence, &stuck);
	bufferevent_enable(reader->io, EV_READ | EV_WRITE);
}

static void on_resume(evutil_socket_t fd, short what, void *context)
{
	struct nt_server *server = context;

	evconnlistener_enable(server->listener);
}

/* accept() fails, and would fail again: there is no descriptor or no memory. New connections wait
 * in the backlog. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
	struct nt_server *server = context;
	int err = EVUTIL_SOCKET_ERROR();

	pause_accepting(server, &without_descriptors);
	server->counts.refusals[NT_REFUSED_DESCRIPTORS]++;
	if (server->complained_ns && nt_now_ns() < server->complained_ns + COMPLAIN_EACH_NS)
		return;
	server->complained_ns = nt_now_ns();
	nt_log("readers have to wait: %s; allow the daemon more (LimitNOFILE= of its unit, or "
	       "`ulimit -n`)",
	       strerror(err));
}

/* Returns 0 if no process listens on the existing socket, -EADDRINUSE if one does, or -errno. A
 * full backlog fails with EAGAIN at once; that, too, means that one does. */
static int find_server(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) ? -errno : -EADDRINUSE;
	close(fd);
	return err == -ECONNREFUSED || err == -ENOENT ? 0 : err == -EAGAIN ? -EADDRINUSE : err;
}

/* Anybody may hold the lock of a directory that anybody may read: then we go on without it. */
#define LOCK_TRIES 100

/* Makes the directory of the socket, if it is not there, and locks it: of two daemons that start at
 * once, neither takes the other's socket for one that is left over. Returns a descriptor or -1. */
static int lock_directory(const char *path)
{
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char *slash;
	int fd;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash && slash != directory) {
		*slash = '\0';
		if (!mkdir(directory, 0755))
			chmod(directory, 0755); /* the umask must not change it */
	}
	fd = open(!slash               ? "."
		  : slash == directory ? "/"
				       : directory,
		  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB); i++)
		usleep(10000);
	return fd;
}

static int bind_socket(struct nt_server *server, int fd, gid_t gid)
{
	const struct sockaddr *addr = (const struct sockaddr *)&server->addr;
	const char *path = server->addr.sun_path;
	struct stat st;
	mode_t mask;
	int err = 0;

	if (!lstat(path, &st)) {
		if (!S_ISSOCK(st.st_mode))
			return -ENOTSOCK;
		err = find_server(&server->addr);
		if (err)
			return err;
		unlink(path);
	}
	mask = umask(0117);
	if (bind(fd, addr, sizeof(server->addr)))
		err = -errno;
	umask(mask);
	server->bound = !err && !lstat(path, &server->bound_as);
	if (!err && gid != (gid_t)-1 && chown(path, (uid_t)-1, gid))
		err = -errno;
	return err;
}

static int listen_at(struct nt_server *server, gid_t gid)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int lock, err;

	if (fd < 0)
		return -errno;
	lock = lock_directory(server->addr.sun_path);
	err = bind_socket(server, fd, gid);
	if (!err) {
		server->listener = evconnlistener_new(server->base, on_connect, server,
						      LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
						      BACKLOG_READERS, fd);
		err = server->listener ? 0 : -ENOMEM;
	}
	if (lock >= 0)
		close(lock);
	if (err)
		close(fd);
	else
		evconnlistener_set_error_cb(server->listener, on_accept_error);
	return err;
}

static const char *remedy(int err)
{
	switch (err) {
	case -EADDRINUSE:
		return "a daemon serves it already; give another --socket";
	case -ENOTSOCK:
		return "is there and no socket; remove it or give another --socket";
	case -ENOENT:
		return "its directory is not there; make it or give another --socket";
	case -EPERM:
	case -EACCES:
		return "not permitted; run as root or give a --socket and --group of yours";
	default:
		return strerror(-err);
	}
}

struct nt_server *nt_server_open(const char *path, gid_t gid, nt_answer *answer, void *context,
				 struct nt_error *error)
{
	struct nt_server *server = calloc(1, sizeof(*server));
	char shown[NT_ESCAPED_LEN(sizeof(((struct sockaddr_un *)0)->sun_path))];
	int err = -ENOMEM;

	if (server) {
		server->base = event_base_new();
		server->answer = answer;
		server->context = context;
		server->own_uid = geteuid();
		LIST_INIT(&server->readers);
		server->addr.sun_family = AF_UNIX;
		snprintf(server->addr.sun_path, sizeof(server->addr.sun_path), "%s", path);
		if (server->base)
			server->resume = event_new(server->base, -1, 0, on_resume, server);
		err = server->resume ? listen_at(server, gid) : -ENOMEM;
	}
	if (!err)
		return server;
	nt_escape(path, strlen(path), shown, sizeof(shown));
	nt_error_set(error, err == -EPERM || err == -EACCES ? NT_EXIT_PERMISSION : NT_EXIT_FAILED,
		     "--socket %s: %s", shown, remedy(err));
	if (server)
		nt_server_close(server);
	return NULL;
}

static void on_loop(evutil_socket_t fd, short what, void *context)
{
	struct nt_server *server = context;

	server->err = nt_loop_turn(server->loop, 0);
	if (server->err || nt_loop_stopped(server->loop))
		event_base_loopbreak(server->base);
}

int nt_server_run(struct nt_server *server, struct nt_loop *loop)
{
	struct event *turn =
		event_new(server->base, nt_loop_fd(loop), EV_READ | EV_PERSIST, on_loop, server);

	server->loop = loop;
	server->err = turn && !event_add(turn, NULL) ? 0 : -ENOMEM;
	if (!server->err && event_base_dispatch(server->base))
		server->err = -EIO;
	if (turn)
		event_free(turn);
	return server->err;
}

/* Writes what readers were to get, as far as they take it at once. Nobody is answered any more. */
static void write_the_rest(struct nt_server *server)
{
	struct nt_reader *reader;

	evconnlistener_disable(server->listener);
	event_del(server->resume);
	LIST_FOREACH(reader, &server->readers, entry)
	{
		event_del(reader->turn);
		bufferevent_setcb(reader->io, NULL, NULL, NULL, NULL);
		bufferevent_disable(reader->io, EV_READ);
	}
	event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void nt_server_close(struct nt_server *server)
{
	struct stat st;

	if (server->listener)
		write_the_rest(server);
	while (!LIST_EMPTY(&server->readers))
		forget(LIST_FIRST(&server->readers));
	if (server->listener)
		evconnlistener_free(server->listener);
	if (server->resume)
		event_free(server->resume);
	if (server->base)
		event_base_free(server->base);
	/* another daemon may have bound the path since, if somebody removed our socket */
	if (server->bound && !lstat(server->addr.sun_path, &st) &&
	    st.st_ino == server->bound_as.st_ino && st.st_dev == server->bound_as.st_dev)
		unlink(server->addr.sun_path);
	free(server);
}

void nt_server_counts(const struct nt_server *server, struct nt_server_counts *counts)
{
	*counts = server->counts;
}
