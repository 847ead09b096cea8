// SPDX-License-Identifier: GPL-2.0
/* Makes the system calls that carry the bytes, one at a time, and logs the time and result of each.
 */
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lab.h"

/* The calls other than write need the payload as a file, a pipe, or a ring. */
struct lab_caller {
	int file;
	int pipe[2];
	bool has_ring;
	struct io_uring ring;
};

static int payload_file(const struct lab_conn *c)
{
	int fd = memfd_create("nagle-lab", MFD_CLOEXEC);

	if (fd < 0 || write(fd, c->payload, c->room) != (ssize_t)c->room)
		return fail(-errno, "cannot make a file of the payload: %s", strerror(errno));
	return fd;
}

static int ring_new(struct lab_caller *caller)
{
	int err = io_uring_queue_init(4, &caller->ring, 0);

	if (err)
		return fail(LAB_CANNOT, "--by io-uring: this kernel gives no ring: %s",
			    strerror(-err));
	caller->has_ring = true;
	return 0;
}

int caller_start(struct lab_conn *c)
{
	enum lab_by by = (enum lab_by)c->end->plan->opt.by;
	struct lab_caller *caller;
	int one = 1;

	if (by == BY_WRITE)
		return 0;
	caller = calloc(1, sizeof(*caller));
	if (!caller)
		return -ENOMEM;
	caller->file = caller->pipe[0] = caller->pipe[1] = -1;
	c->caller = caller;
	if (by == BY_SENDFILE || by == BY_SPLICE)
		caller->file = payload_file(c);
	if (by == BY_SPLICE && pipe2(caller->pipe, O_CLOEXEC))
		return -errno;
	if (by == BY_ZEROCOPY && setsockopt(c->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		return -errno;
	return by == BY_IO_URING ? ring_new(caller) : 0;
}

void caller_stop(struct lab_conn *c)
{
	struct lab_caller *caller = c->caller;

	if (!caller)
		return;
	if (caller->has_ring)
		io_uring_queue_exit(&caller->ring);
	close(caller->file);
	close(caller->pipe[0]);
	close(caller->pipe[1]);
	free(caller);
	c->caller = NULL;
}

size_t iov_bytes(const struct iovec *iov, int nr)
{
	size_t bytes = 0;

	for (int i = 0; i < nr; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* Sends all of the pipe before it returns, so that nothing stays behind for the next call. */
static ssize_t splice_out(struct lab_conn *c, off_t at, size_t bytes)
{
	struct lab_caller *caller = c->caller;
	ssize_t filled = splice(caller->file, &at, caller->pipe[1], NULL, bytes, 0);
	ssize_t left = filled;

	while (left > 0) {
		ssize_t n = splice(caller->pipe[0], NULL, c->fd, NULL, (size_t)left, 0);

		if (n < 0)
			return n;
		left -= n;
	}
	return filled;
}

/* Empties the error queue, where the kernel tells that it has done with pages. Ours never change.
 */
static ssize_t send_zerocopy(const struct lab_conn *c, const struct iovec *iov)
{
	char control[128];
	struct msghdr msg;

	do {
		msg = (struct msghdr){.msg_control = control, .msg_controllen = sizeof(control)};
	} while (recvmsg(c->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0);
	return send(c->fd, iov->iov_base, iov->iov_len, MSG_ZEROCOPY);
}

/* A worker thread of the ring makes the call, not the caller. */
static ssize_t send_by_ring(struct lab_conn *c, const struct iovec *iov)
{
	struct io_uring *ring = &c->caller->ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int err;

	io_uring_prep_send(sqe, c->fd, iov->iov_base, iov->iov_len, 0);
	sqe->flags |= IOSQE_ASYNC;
	do {
		err = io_uring_submit_and_wait(ring, 1);
	} while (err == -EINTR);
	if (err >= 0)
		err = io_uring_wait_cqe(ring, &cqe);
	if (err < 0) {
		errno = -err;
		return -1;
	}
	err = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	if (err >= 0)
		return err;
	errno = -err;
	return -1;
}

static ssize_t send_once(struct lab_conn *c, const struct lab_send *s)
{
	const struct msghdr msg = {.msg_iov = (struct iovec *)s->iov, .msg_iovlen = (size_t)s->nr};
	const struct iovec *iov = s->iov;
	off_t at = (char *)iov->iov_base - c->payload;

	switch (s->call) {
	case CALL_SEND:
		return send(c->fd, iov->iov_base, iov->iov_len, s->flags);
	case CALL_SENDMSG:
		return sendmsg(c->fd, &msg, s->flags);
	case CALL_WRITEV:
		return writev(c->fd, iov, s->nr);
	case CALL_SENDFILE:
		return sendfile(c->fd, c->caller->file, &at, iov->iov_len);
	case CALL_SPLICE:
		return splice_out(c, at, iov->iov_len);
	case CALL_ZEROCOPY:
		return send_zerocopy(c, iov);
	case CALL_IO_URING:
		return send_by_ring(c, iov);
	default:
		return write(c->fd, iov->iov_base, iov->iov_len);
	}
}

/* Waits for a non-blocking socket; without --epoll no call returns EAGAIN. */
static void await(struct lab_conn *c, uint32_t events)
{
	struct epoll_event want = {.events = events};

	if (c->epoll < 0)
		c->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->fd, &want))
		epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->fd, &want);
	epoll_wait(c->epoll, &want, 1, -1);
}

ssize_t send_call(struct lab_conn *c, const struct lab_send *s)
{
	uint64_t start = log_start(&c->log);
	ssize_t n;

	while ((n = send_once(c, s)) < 0 && errno == EAGAIN)
		await(c, EPOLLOUT);
	if (n < 0)
		n = -errno;
	log_add(c, &(struct lab_event){.call = s->call,
				       .flags = s->flags,
				       .bytes = (int64_t)iov_bytes(s->iov, s->nr),
				       .offset = c->sent,
				       .result = n,
				       .start_ns = start});
	if (n > 0)
		c->sent += (uint64_t)n;
	return n;
}

ssize_t read_call(struct lab_conn *c, void *buf, size_t bytes)
{
	uint64_t start = log_start(&c->log);
	ssize_t n;

	while ((n = read(c->fd, buf, bytes)) < 0 && errno == EAGAIN)
		await(c, EPOLLIN);
	if (n < 0)
		n = -errno;
	log_add(c, &(struct lab_event){.call = CALL_READ,
				       .bytes = (int64_t)bytes,
				       .offset = c->received,
				       .result = n,
				       .start_ns = start});
	if (n > 0)
		c->received += (uint64_t)n;
	return n;
}
