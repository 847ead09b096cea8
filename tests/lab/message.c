// SPDX-License-Identifier: GPL-2.0
/* Sends and reads one message of a round, in its parts. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lab.h"

/* Any letters do; the seed makes two runs' payloads differ or agree at will. */
static char *payload(size_t bytes, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	char *buf = malloc(bytes ? bytes : 1);

	for (size_t i = 0; buf && i < bytes; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		buf[i] = (char)('a' + x % 26);
	}
	return buf;
}

int conn_prepare(struct lab_conn *c, uint32_t mss)
{
	const struct lab_plan *plan = c->end->plan;

	turn_first(c, mss);
	c->room = turn_room(c);
	c->payload = payload(c->room, plan->opt.seed + c->end->side);
	c->inbox = malloc(c->room ? c->room : 1);
	c->rounds = calloc(plan->opt.rounds, sizeof(*c->rounds));
	if (!c->payload || !c->inbox || !c->rounds)
		return -ENOMEM;
	return caller_start(c);
}

void conn_release(struct lab_conn *c)
{
	caller_stop(c);
	if (c->fd >= 0)
		close(c->fd);
	if (c->epoll >= 0)
		close(c->epoll);
	c->fd = c->epoll = -1;
	free(c->payload);
	free(c->inbox);
	free(c->rounds);
	free(c->log.event);
}

struct writing {
	struct lab_conn *c;
	const struct lab_send *send;
	ssize_t result;
};

static void *write_once(void *arg)
{
	struct writing *w = arg;

	w->result = send_call(w->c, w->send);
	return NULL;
}

/*
 * Of N writers in turn, the first is the thread that plays the connection; for each write of the
 * others a thread is made.
 */
static ssize_t call_in_turn(struct lab_conn *c, const struct lab_send *s)
{
	uint64_t threads = c->end->side == LAB_CLIENT ? c->end->plan->opt.threads : 1;
	struct writing w = {c, s, 0};
	pthread_t thread;
	int err;

	if (c->writes++ % threads == 0)
		return send_call(c, s);
	err = pthread_create(&thread, NULL, write_once, &w);
	if (err)
		return -err;
	pthread_join(thread, NULL);
	return w.result;
}

/* A blocking socket takes all of it, unless a stop signal or a debugger came between. */
static int send_all(struct lab_conn *c, const struct lab_send *s)
{
	size_t bytes = iov_bytes(s->iov, s->nr), done = 0;
	char *buf = s->iov->iov_base;
	struct lab_send rest = *s;
	struct iovec iov;

	for (;;) {
		ssize_t n = call_in_turn(c, &rest);

		if (n < 0 && n != -EINTR)
			return (int)n;
		done += n > 0 ? (size_t)n : 0;
		if (done == bytes)
			return 0;
		if (!done)
			continue;
		iov = (struct iovec){buf + done, bytes - done};
		rest = (struct lab_send){s->nr > 1 ? CALL_WRITE : s->call, &iov, 1, s->flags};
	}
}

static enum lab_call plain_call(const struct lab_conn *c)
{
	static const enum lab_call calls[] = {
		[BY_WRITE] = CALL_WRITE,       [BY_SENDFILE] = CALL_SENDFILE,
		[BY_SPLICE] = CALL_SPLICE,     [BY_ZEROCOPY] = CALL_ZEROCOPY,
		[BY_IO_URING] = CALL_IO_URING,
	};

	return calls[c->end->plan->opt.by];
}

static int send_parts(struct lab_conn *c, const struct lab_sizes *sizes)
{
	const struct lab_turn *t = &c->turn;
	bool more = t->how == HOW_MSG_MORE;
	/* cork-forgotten is about the request; a reply that never ends would hide its hold. */
	bool forget = c->end->plan->forget_more && c->end->side == LAB_CLIENT;
	struct iovec iov = {c->payload, 0};
	int err;

	for (uint32_t i = 0; i < sizes->nr; i++) {
		int flags = more && (forget || i + 1 < sizes->nr) ? MSG_MORE : 0;
		enum lab_call call = flags ? CALL_SEND : plain_call(c);

		if (i && t->cork != CORK_ROUND)
			sleep_ns(t->pause_ns);
		iov.iov_len = sizes->part[i];
		err = send_all(c, &(struct lab_send){call, &iov, 1, flags});
		if (err)
			return err;
		iov.iov_base = (char *)iov.iov_base + sizes->part[i];
	}
	return 0;
}

static int send_vector(struct lab_conn *c, const struct lab_sizes *sizes, enum lab_call call)
{
	struct iovec iov[LAB_MAX_WRITES];
	char *at = c->payload;

	for (uint32_t i = 0; i < sizes->nr; i++) {
		iov[i] = (struct iovec){at, sizes->part[i]};
		at += sizes->part[i];
	}
	return send_all(c, &(struct lab_send){call, iov, (int)sizes->nr, 0});
}

int message_send(struct lab_conn *c, enum lab_side from)
{
	const struct lab_sizes *sizes = &c->turn.message[from];
	const struct iovec all = {c->payload, sizes->bytes};

	switch (c->turn.how) {
	case HOW_COALESCE:
		return send_all(c, &(struct lab_send){plain_call(c), &all, 1, 0});
	case HOW_WRITEV:
		return send_vector(c, sizes, CALL_WRITEV);
	case HOW_SENDMSG:
		return send_vector(c, sizes, CALL_SENDMSG);
	default:
		return send_parts(c, sizes);
	}
}

/* Returns -ENODATA if the peer closed within the message, or before it: then sets c->over. */
int message_read(struct lab_conn *c, enum lab_side from)
{
	const struct lab_options *opt = &c->end->plan->opt;
	bool server = c->end->side == LAB_SERVER;
	size_t whole = c->turn.message[from].bytes, left = whole;

	if (server && opt->answer_after && opt->answer_after < left)
		left = whole = opt->answer_after;
	while (left) {
		size_t most = server && opt->read_bytes ? opt->read_bytes : left;
		ssize_t n;
		int err;

		if (server)
			sleep_ns(opt->read_pause_ns);
		/* The kernel leaves quick-ACK mode by itself, hence before every read. */
		err = server && c->turn.quickack ? conn_setsockopt(c, TCP_QUICKACK, 1) : 0;
		if (err)
			return err;
		n = read_call(c, c->inbox, most < left ? most : left);
		if (n == -EINTR)
			continue;
		c->over = !n && left == whole;
		if (n <= 0)
			return n ? (int)n : -ENODATA;
		left -= (size_t)n;
	}
	return 0;
}
