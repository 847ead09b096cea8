// SPDX-License-Identifier: GPL-2.0
#include "server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#include "clock.h"
#include "text.h"

/* A reader that has this much waiting gets no more stalls, nor answers, until it has read. */
#define BACKLOG_BYTES (256 * 1024)

/* All of them together may cost so much memory, and one answer more. */
#define ALL_BACKLOG_BYTES (16 << 20)

/* Rendering for one reader must not keep records from being consumed. */
#define STALLS_PER_SECOND 5000

/* A silent reader, and one that reads nothing of what waits for it, are sent away. */
static const struct timeval silence = {.tv_sec = 120}, stuck = {.tv_sec = 30};

struct nt_reader {
	LIST_ENTRY(nt_reader) entry;
	struct nt_server *server;
	struct bufferevent *io;
	bool streaming;
	bool leaving; /* it sends nothing more, and is sent what it has asked for */
	enum nt_format format;
	bool has_room;    /* for the stall at hand */
	uint64_t skipped; /* stalls, since the reader was told last */
	uint64_t second;  /* of which budget is what is left */
	unsigned int budget;
};

struct nt_server {
	struct event_base *base;
	struct evconnlistener *listener;
	LIST_HEAD(, nt_reader) readers;
	nt_answer *answer;
	void *context;
	struct nt_server_counts counts;
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

/* Sends {"type":…,"protocol":…} with one more key, whose value is text or a number. */
static void send_note(struct nt_reader *reader, const char *type, const char *key,
		      struct json_object *value)
{
	struct json_object *o = json_object_new_object();
	const char *line;

	json_object_object_add(o, "type", json_object_new_string(type));
	json_object_object_add(o, "protocol", json_object_new_int(NT_PROTOCOL));
	json_object_object_add(o, key, value);
	line = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	nt_reader_send(reader, line, strlen(line));
	nt_reader_send(reader, "\n", 1);
	json_object_put(o);
}

/* Once a second a streaming reader may have so many stalls more. */
static bool take_from_budget(struct nt_reader *reader)
{
	uint64_t second = nt_now_ns() / NT_SECOND_NS;

	if (reader->second != second) {
		reader->second = second;
		reader->budget = STALLS_PER_SECOND;
	}
	if (!reader->budget)
		return false;
	reader->budget--;
	return true;
}

/* What a reader did not get is told as soon as it has room again. */
static void tell_skipped(struct nt_reader *reader)
{
	if (!reader->skipped || waiting(reader) > BACKLOG_BYTES)
		return;
	send_note(reader, "skipped", "stalls", json_object_new_uint64(reader->skipped));
	reader->skipped = 0;
}

void nt_reader_stream(struct nt_reader *reader, enum nt_format format)
{
	if (!reader->streaming)
		reader->server->counts.streaming++;
	reader->streaming = true;
	reader->format = format;
}

bool nt_server_wants(struct nt_server *server, enum nt_format format)
{
	struct nt_reader *reader;
	bool any = false;

	LIST_FOREACH(reader, &server->readers, entry)
	{
		if (!reader->streaming || reader->format != format)
			continue;
		reader->has_room = waiting(reader) <= BACKLOG_BYTES && take_from_budget(reader);
		if (!reader->has_room) {
			reader->skipped++;
			server->counts.skipped++;
		}
		any |= reader->has_room;
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
		tell_skipped(reader);
		nt_reader_send(reader, line, length);
	}
}

/* Bytes that wait for all readers. */
static size_t waiting_for_all(const struct nt_server *server)
{
	struct nt_reader *reader;
	size_t bytes = 0;

	LIST_FOREACH(reader, &server->readers, entry)
	bytes += waiting(reader);
	return bytes;
}

static void take_line(struct nt_reader *reader, const char *line, size_t length)
{
	struct nt_server *server = reader->server;
	struct nt_request request;
	char err[NT_REQUEST_TEXT];

	if (waiting_for_all(server) > ALL_BACKLOG_BYTES) {
		server->counts.refused++;
		send_note(reader, "error", "error",
			  json_object_new_string("too much waits for readers that do not read; "
						 "ask again later"));
		return;
	}
	if (nt_request_parse(line, length, &request, err, sizeof(err))) {
		server->counts.refused++;
		send_note(reader, "error", "error", json_object_new_string(err));
		return;
	}
	server->counts.requests++;
	server->answer(server->context, reader, &request);
}

/* No request of ours is that long. */
static void refuse_length(struct nt_reader *reader)
{
	reader->server->counts.refused++;
	send_away(reader);
}

/* The requests that have come whole, as long as the answers are read. */
static void take_lines(struct nt_reader *reader)
{
	struct evbuffer *in = bufferevent_get_input(reader->io);
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
	(void)io;
	take_lines(context);
}

/* All that waited was sent. */
static void on_drained(struct bufferevent *io, void *context)
{
	struct nt_reader *reader = context;

	if (reader->leaving) {
		forget(reader);
		return;
	}
	tell_skipped(reader);
	if (bufferevent_get_enabled(io) & EV_READ)
		return;
	bufferevent_enable(io, EV_READ);
	take_lines(reader);
}

/* It has asked all it wants, and waits for the answer. */
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
		bufferevent_enable(io, EV_READ); /* it has nothing to say, and need not */
		return;
	}
	if (what & BEV_EVENT_TIMEOUT)
		send_away(reader);
	else if (what & BEV_EVENT_EOF && waiting(reader))
		leave_when_drained(reader);
	else
		forget(reader);
}

static void on_connect(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *addr,
		       int length, void *context)
{
	struct nt_server *server = context;
	struct nt_reader *reader;

	(void)listener;
	(void)addr;
	(void)length;
	reader = server->counts.readers < NT_MAX_READERS ? calloc(1, sizeof(*reader)) : NULL;
	if (reader)
		reader->io = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!reader || !reader->io) {
		server->counts.dropped++;
		close(fd);
		free(reader);
		return;
	}
	reader->server = server;
	LIST_INSERT_HEAD(&server->readers, reader, entry);
	server->counts.readers++;
	bufferevent_setcb(reader->io, on_input, on_drained, on_change, reader);
	bufferevent_setwatermark(reader->io, EV_READ, 0, 2 * NT_REQUEST_MAX);
	bufferevent_set_timeouts(reader->io, &silence, &stuck);
	bufferevent_enable(reader->io, EV_READ | EV_WRITE);
}

/* Does somebody serve the socket that is there? */
static bool is_served(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool served;

	if (fd < 0)
		return true;
	served = !connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) ||
		 (errno != ECONNREFUSED && errno != ENOENT);
	close(fd);
	return served;
}

static void make_directory(const char *path)
{
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char *slash;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash && slash != directory) {
		*slash = '\0';
		if (!mkdir(directory, 0755))
			chmod(directory, 0755); /* whatever the umask */
	}
}

static int bind_socket(struct nt_server *server, int fd, gid_t gid)
{
	const struct sockaddr *addr = (const struct sockaddr *)&server->addr;
	const char *path = server->addr.sun_path;
	struct stat st;
	mode_t mask;
	int err = 0;

	make_directory(path);
	if (!lstat(path, &st)) {
		if (!S_ISSOCK(st.st_mode))
			return -ENOTSOCK;
		if (is_served(&server->addr))
			return -EADDRINUSE;
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
	int err;

	if (fd < 0)
		return -errno;
	err = bind_socket(server, fd, gid);
	if (!err) {
		server->listener = evconnlistener_new(server->base, on_connect, server,
						      LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
						      NT_MAX_READERS, fd);
		err = server->listener ? 0 : -ENOMEM;
	}
	if (err)
		close(fd);
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

struct nt_server *nt_server_open(struct event_base *base, const char *path, gid_t gid,
				 nt_answer *answer, void *context, int *cause, char *err,
				 size_t err_size)
{
	struct nt_server *server = calloc(1, sizeof(*server));
	char shown[NT_ESCAPED_LEN(sizeof(((struct sockaddr_un *)0)->sun_path))];

	*cause = -ENOMEM;
	if (server) {
		server->base = base;
		server->answer = answer;
		server->context = context;
		LIST_INIT(&server->readers);
		server->addr.sun_family = AF_UNIX;
		snprintf(server->addr.sun_path, sizeof(server->addr.sun_path), "%s", path);
		*cause = listen_at(server, gid);
	}
	if (!*cause)
		return server;
	nt_escape(path, strlen(path), shown, sizeof(shown));
	snprintf(err, err_size, "--socket %s: %s", shown, remedy(*cause));
	if (server)
		nt_server_close(server);
	return NULL;
}

void nt_server_close(struct nt_server *server)
{
	struct stat st;

	while (!LIST_EMPTY(&server->readers))
		forget(LIST_FIRST(&server->readers));
	if (server->listener)
		evconnlistener_free(server->listener);
	/* another daemon may have taken the place since, if somebody removed ours */
	if (server->bound && !lstat(server->addr.sun_path, &st) &&
	    st.st_ino == server->bound_as.st_ino && st.st_dev == server->bound_as.st_dev)
		unlink(server->addr.sun_path);
	free(server);
}

void nt_server_counts(const struct nt_server *server, struct nt_server_counts *counts)
{
	*counts = server->counts;
}
