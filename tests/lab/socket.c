// SPDX-License-Identifier: GPL-2.0
/* Makes sockets and sets their options. */
#include <linux/tls.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

static int set_and_log(struct lab_conn *c, const void *value, socklen_t bytes, struct lab_event e)
{
	e.start_ns = log_start(&c->log);
	e.result = setsockopt(c->fd, IPPROTO_TCP, e.option, value, bytes) ? -errno : 0;
	e.call = CALL_SETSOCKOPT;
	e.bytes = bytes;
	e.offset = c->sent;
	log_add(c, &e);
	return (int)e.result;
}

int conn_setsockopt(struct lab_conn *c, int option, int value)
{
	return set_and_log(c, &value, sizeof(value),
			   (struct lab_event){.option = option, .value = value});
}

int conn_setsockopt_cc(struct lab_conn *c, const char *name)
{
	return set_and_log(c, name, (socklen_t)strlen(name),
			   (struct lab_event){.option = TCP_CONGESTION, .text = name});
}

int conn_close(struct lab_conn *c)
{
	uint64_t start = log_start(&c->log);
	int err = close(c->fd) ? -errno : 0;

	c->fd = -1;
	log_add(c,
		&(struct lab_event){
			.call = CALL_CLOSE, .offset = c->sent, .result = err, .start_ns = start});
	return err;
}

static int set_int(int fd, int level, int option, uint64_t value)
{
	int v = (int)value;

	return setsockopt(fd, level, option, &v, sizeof(v)) ? -errno : 0;
}

/* One key serves both directions and both ends: it need not keep anybody out. */
int socket_ktls(int fd)
{
	struct tls12_crypto_info_aes_gcm_128 info = {
		.info = {.version = TLS_1_2_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128},
		.key = "nagle-lab-nagle",
		.salt = "lab",
		.iv = "nagle-l",
	};

	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) ||
	    setsockopt(fd, SOL_TLS, TLS_TX, &info, sizeof(info)) ||
	    setsockopt(fd, SOL_TLS, TLS_RX, &info, sizeof(info)))
		return fail(LAB_CANNOT, "--ktls: this kernel has no TLS: %s", strerror(errno));
	return 0;
}

static int set_keepalive(int fd)
{
	int err = set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);

	if (!err)
		err = set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
	return err ? err : set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
}

/* Sets the options of a connected socket of either end. */
int conn_options(struct lab_conn *c, bool nodelay)
{
	const struct lab_options *opt = &c->end->plan->opt;
	int err = 0;

	c->nodelay_now = false;
	c->corked_now = c->end->plan->cork == CORK_BOTH;
	if (nodelay) {
		err = conn_setsockopt(c, TCP_NODELAY, 1);
		c->nodelay_now = true;
	}
	if (!err && c->corked_now)
		err = conn_setsockopt(c, TCP_CORK, 1);
	if (!err && opt->keepalive)
		err = set_keepalive(c->fd);
	if (err)
		return fail(err, "%s: cannot set an option: %s", c->end->ops->name, strerror(-err));
	return opt->ktls ? socket_ktls(c->fd) : 0;
}

int socket_new(const struct lab_plan *plan)
{
	const struct lab_options *opt = &plan->opt;
	int family = opt->family == 6 || opt->v4_mapped ? AF_INET6 : AF_INET;
	int type = SOCK_STREAM | SOCK_CLOEXEC;
	int fd = socket(family, type, opt->mptcp ? IPPROTO_MPTCP : IPPROTO_TCP);

	if (fd < 0 && opt->mptcp)
		return fail(LAB_CANNOT, "--mptcp: this kernel has no MPTCP: %s", strerror(errno));
	if (fd < 0)
		return fail(-errno, "cannot make a TCP socket: %s", strerror(errno));
	return fd;
}

static int set_cc(int fd, const char *cc)
{
	if (!cc || !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)))
		return 0;
	return fail(-errno, "cannot set --cc %s: %s; see net.ipv4.tcp_available_congestion_control",
		    cc, strerror(errno));
}

/* Sets what accepted sockets inherit, and what the SYN-ACK tells. */
int socket_before_listen(int fd, const struct lab_options *opt)
{
	int err = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);

	if (!err && opt->v4_mapped)
		err = set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (!err && opt->rcvbuf)
		err = set_int(fd, SOL_SOCKET, SO_RCVBUF, opt->rcvbuf);
	if (!err && opt->fast_open)
		err = set_int(fd, IPPROTO_TCP, TCP_FASTOPEN, LAB_MAX_CONNECTIONS);
	if (err)
		return fail(err, "cannot set an option of the listener: %s", strerror(-err));
	return set_cc(fd, opt->cc);
}

int socket_before_connect(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	const struct linger at_once = {.l_onoff = 1};
	unsigned int pace = (unsigned int)opt->pace;
	int err = 0;

	if (opt->fast_open)
		err = set_int(c->fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
	if (!err && pace)
		err = setsockopt(c->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, sizeof(pace))
			      ? -errno
			      : 0;
	/* A reset leaves no TIME_WAIT behind: many connections would use all ports up. */
	if (!err && opt->reconnect && !opt->fast_open)
		err = setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) ? -errno
											  : 0;
	if (err)
		return fail(err, "client: cannot set an option: %s", strerror(-err));
	return set_cc(c->fd, opt->cc);
}
