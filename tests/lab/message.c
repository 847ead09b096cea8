// SPDX-License-Identifier: GPL-2.0
/* Sending and reading one message in its parts, and the options set on the way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <netinet/in.h>
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
	if (buf && bytes)
		buf[bytes - 1] = '\n';
	return buf;
}

static int log_prepare(struct lab_conn *c)
{
	const struct lab_plan *plan = c->end->plan;
	uint64_t each = 2 * (plan->request.nr + plan->reply.nr) + 4;
	uint64_t room = c->log.nr + plan->opt.rounds * each;
	struct lab_event *grown;

	if (!c->log.on)
		return 0;
	grown = realloc(c->log.event, room * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	c->log.event = grown;
	c->log.room = (uint32_t)room;
	return 0;
}

int conn_prepare(struct lab_conn *c, uint32_t mss)
{
	const struct lab_plan *plan = c->end->plan;
	uint64_t size = plan->opt.size, seed = plan->opt.seed;

	c->request_bytes = message_sizes(&plan->request, size, mss, c->request_size);
	c->reply_bytes = message_sizes(&plan->reply, size, mss, c->reply_size);
	c->request = payload(c->request_bytes, seed);
	c->reply = payload(c->reply_bytes, seed + 1);
	c->rounds = calloc(plan->opt.rounds, sizeof(*c->rounds));
	if (!c->request || !c->reply || !c->rounds || log_prepare(c))
		return -ENOMEM;
	return c->end->side == LAB_CLIENT && plan->opt.threads > 1 ? writers_start(c) : 0;
}

void conn_release(struct lab_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->request);
	free(c->reply);
	free(c->rounds);
	free(c->log.event);
}

int conn_setsockopt(struct lab_conn *c, int option, int value)
{
	uint64_t start = log_start(&c->log);
	int err = setsockopt(c->fd, IPPROTO_TCP, option, &value, sizeof(value)) ? -errno : 0;

	log_add(c, &(struct lab_event){.call = CALL_SETSOCKOPT,
				       .option = option,
				       .value = value,
				       .bytes = sizeof(value),
				       .result = err,
				       .start_ns = start});
	return err;
}

int conn_setsockopt_cc(struct lab_conn *c)
{
	const char *cc = c->end->plan->opt.cc;
	uint64_t start = log_start(&c->log);
	int err;

	err = setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) ? -errno
											: 0;
	log_add(c, &(struct lab_event){.call = CALL_SETSOCKOPT,
				       .option = TCP_CONGESTION,
				       .bytes = (int64_t)strlen(cc),
				       .result = err,
				       .start_ns = start});
	return err;
}

int conn_close(struct lab_conn *c)
{
	uint64_t start = log_start(&c->log);
	int err = close(c->fd) ? -errno : 0;

	c->fd = -1;
	log_add(c, &(struct lab_event){.call = CALL_CLOSE, .result = err, .start_ns = start});
	return err;
}

static size_t iov_bytes(const struct iovec *iov, int nr)
{
	size_t bytes = 0;

	for (int i = 0; i < nr; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

ssize_t send_call(struct lab_conn *c, const struct lab_send *s)
{
	const struct msghdr msg = {.msg_iov = (struct iovec *)s->iov, .msg_iovlen = (size_t)s->nr};
	uint64_t start = log_start(&c->log);
	ssize_t n;

	switch (s->call) {
	case CALL_SEND:
		n = send(c->fd, s->iov->iov_base, s->iov->iov_len, s->flags);
		break;
	case CALL_SENDMSG:
		n = sendmsg(c->fd, &msg, s->flags);
		break;
	case CALL_WRITEV:
		n = writev(c->fd, s->iov, s->nr);
		break;
	default:
		n = write(c->fd, s->iov->iov_base, s->iov->iov_len);
	}
	if (n < 0)
		n = -errno;
	log_add(c, &(struct lab_event){.call = s->call,
				       .flags = s->flags,
				       .bytes = (int64_t)iov_bytes(s->iov, s->nr),
				       .result = n,
				       .start_ns = start});
	return n;
}

/* A blocking socket takes all of it, unless a stop signal or a debugger came between. */
static int send_all(struct lab_conn *c, const struct lab_send *s)
{
	size_t bytes = iov_bytes(s->iov, s->nr), done = 0;
	char *buf = s->iov->iov_base;
	struct lab_send rest = *s;
	struct iovec iov;

	for (;;) {
		ssize_t n = c->writers ? writers_call(c, &rest) : send_call(c, &rest);

		if (n < 0 && n != -EINTR)
			return (int)n;
		done += n > 0 ? (size_t)n : 0;
		if (done == bytes)
			return 0;
		if (!done)
			continue;
		iov = (struct iovec){buf + done, bytes - done};
		rest = (struct lab_send){s->flags ? s->call : CALL_WRITE, &iov, 1, s->flags};
	}
}

static void lay_out(struct iovec *iov, char *buf, const uint32_t *size, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		iov[i] = (struct iovec){buf, size[i]};
		buf += size[i];
	}
}

static int send_parts(struct lab_conn *c, const struct iovec *iov, uint32_t nr)
{
	const struct lab_plan *plan = c->end->plan;
	bool more = plan->opt.how == HOW_MSG_MORE;
	/* cork-forgotten is about the request; a reply that never ends would hide its hold. */
	bool forget = plan->forget_more && c->end->side == LAB_CLIENT;
	bool pause = plan->opt.pause_ns && plan->cork != CORK_ROUND;
	int err;

	for (uint32_t i = 0; i < nr; i++) {
		int flags = more && (forget || i + 1 < nr) ? MSG_MORE : 0;

		if (i && pause)
			sleep_ns(plan->opt.pause_ns);
		err = send_all(
			c, &(struct lab_send){flags ? CALL_SEND : CALL_WRITE, &iov[i], 1, flags});
		if (err)
			return err;
	}
	return 0;
}

int message_send(struct lab_conn *c, enum lab_side from)
{
	const struct lab_plan *plan = c->end->plan;
	bool request = from == LAB_CLIENT;
	uint32_t nr = request ? plan->request.nr : plan->reply.nr;
	const uint32_t *size = request ? c->request_size : c->reply_size;
	char *buf = request ? c->request : c->reply;
	struct iovec iov[LAB_MAX_PARTS];

	lay_out(iov, buf, size, nr);
	switch ((enum lab_how)plan->opt.how) {
	case HOW_COALESCE:
		iov[0].iov_len = request ? c->request_bytes : c->reply_bytes;
		return send_all(c, &(struct lab_send){CALL_WRITE, iov, 1, 0});
	case HOW_WRITEV:
		return send_all(c, &(struct lab_send){CALL_WRITEV, iov, (int)nr, 0});
	case HOW_SENDMSG:
		return send_all(c, &(struct lab_send){CALL_SENDMSG, iov, (int)nr, 0});
	default:
		return send_parts(c, iov, nr);
	}
}

/* -ENODATA: the peer closed before the message was complete. */
int message_read(struct lab_conn *c, enum lab_side from)
{
	const struct lab_plan *plan = c->end->plan;
	char *buf = from == LAB_CLIENT ? c->request : c->reply;
	size_t left = from == LAB_CLIENT ? c->request_bytes : c->reply_bytes;
	bool quickack = plan->opt.quickack && c->end->side == LAB_SERVER;
	int err;

	while (left) {
		uint64_t start;
		ssize_t n;

		/* The kernel leaves quick-ACK mode by itself, hence before every read. */
		err = quickack ? conn_setsockopt(c, TCP_QUICKACK, 1) : 0;
		if (err)
			return err;
		start = log_start(&c->log);
		n = read(c->fd, buf, left);
		if (n < 0)
			n = -errno;
		log_add(c, &(struct lab_event){.call = CALL_READ,
					       .bytes = (int64_t)left,
					       .result = n,
					       .start_ns = start});
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n ? (int)n : -ENODATA;
		left -= (size_t)n;
	}
	return 0;
}
