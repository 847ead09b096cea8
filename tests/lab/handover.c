// SPDX-License-Identifier: GPL-2.0
/*
 * Another process plays the client's rounds: a child forked after connecting, which inherited the
 * sockets, or one forked before, to which they are passed over a unix socket. The first process
 * then only waits, so that the worker's end is seen as the client's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

union fd_control {
	char buf[CMSG_SPACE(sizeof(int) * LAB_MAX_CONNECTIONS)];
	struct cmsghdr align;
};

static bool wanted(const struct lab_end *end, enum lab_handover how)
{
	return end->side == LAB_CLIENT && end->plan->opt.handover == how;
}

static int fork_worker(struct lab_end *end, pid_t *worker)
{
	pid_t self = getpid();
	int err;

	*worker = fork();
	if (*worker < 0)
		return fail(-errno, "cannot fork the worker: %s", strerror(errno));
	if (!*worker) {
		end->is_worker = true;
		err = end_be_child(self, end_name(&end->plan->opt, LAB_CLIENT));
		return err ? err : end_add_pid(end, getpid());
	}
	return end_add_pid(end, *worker);
}

static void __attribute__((noreturn)) wait_for_worker(const struct lab_end *end)
{
	pid_t pid = end->pids[end->nr_pids - 1];
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fail(-EINTR, "the client's worker %d was ended by signal %d", pid,
		     WTERMSIG(status));
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static int transfer(int fd, void *buf, size_t bytes, bool out)
{
	ssize_t n = out ? send(fd, buf, bytes, 0) : recv(fd, buf, bytes, MSG_WAITALL);

	return n == (ssize_t)bytes ? 0 : -EPIPE;
}

/* The options set so far were logged by the process that passes the sockets. */
static int pass_logs(struct lab_end *end, bool out)
{
	int err = 0;

	for (uint32_t i = 0; i < end->nr_conns && !err; i++) {
		struct lab_log *log = &end->conn[i].log;

		err = transfer(end->passage, &log->nr, sizeof(log->nr), out);
		if (!err && !out && log->nr) {
			log->room = log->nr;
			log->event = calloc(log->nr, sizeof(*log->event));
			err = log->event ? 0 : -ENOMEM;
		}
		if (!err && log->nr)
			err = transfer(end->passage, log->event, log->nr * sizeof(*log->event),
				       out);
	}
	return err;
}

static int pass_sockets(struct lab_end *end)
{
	union fd_control control = {};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf};
	size_t bytes = sizeof(int) * end->nr_conns;
	struct cmsghdr *cmsg;

	msg.msg_controllen = CMSG_SPACE(bytes);
	cmsg = CMSG_FIRSTHDR(&msg);
	*cmsg = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	for (uint32_t i = 0; i < end->nr_conns; i++)
		memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &end->conn[i].fd, sizeof(int));
	if (sendmsg(end->passage, &msg, 0) != 1)
		return fail(-errno, "cannot pass the sockets: %s", strerror(errno));
	for (uint32_t i = 0; i < end->nr_conns; i++) {
		close(end->conn[i].fd);
		end->conn[i].fd = -1;
	}
	return pass_logs(end, true);
}

static int get_sockets(struct lab_end *end)
{
	union fd_control control = {};
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *cmsg;
	ssize_t n;

	do {
		n = recvmsg(end->passage, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	/* Nothing came: the process that connects has failed and said so. */
	if (n <= 0)
		return -EPIPE;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_len != CMSG_LEN(sizeof(int) * end->nr_conns))
		return fail(-EPROTO, "the worker did not get the client's sockets");
	for (uint32_t i = 0; i < end->nr_conns; i++)
		memcpy(&end->conn[i].fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
	return pass_logs(end, false);
}

int handover_prepare(struct lab_end *end)
{
	int pair[2], err;
	pid_t worker;

	if (!wanted(end, HANDOVER_PASS_FD))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return fail(-errno, "cannot make a socket pair: %s", strerror(errno));
	err = fork_worker(end, &worker);
	end->passage = worker ? pair[0] : pair[1];
	close(worker ? pair[1] : pair[0]);
	return err;
}

int handover_do(struct lab_end *end)
{
	pid_t worker;
	int err = 0;

	if (wanted(end, HANDOVER_PASS_FD)) {
		err = end->is_worker ? get_sockets(end) : pass_sockets(end);
		close(end->passage);
		if (!err && !end->is_worker)
			wait_for_worker(end);
	} else if (wanted(end, HANDOVER_FORK)) {
		err = fork_worker(end, &worker);
		if (!err && worker)
			wait_for_worker(end);
	}
	return err;
}
