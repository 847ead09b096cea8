// SPDX-License-Identifier: GPL-2.0
/* Makes namespaces, the veth pair, addresses and sockets. Nothing here gets a name on the host. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

/* These are the documentation prefixes, so no route of the host can mean them. */
static const struct {
	const char *link;
	const char *mac;
	const char *ip4;
	const char *ip6;
} veth[LAB_SIDES] = {
	[LAB_CLIENT] = {"lab-client", "02:00:5e:10:00:01", "192.0.2.1", "2001:db8::1"},
	[LAB_SERVER] = {"lab-server", "02:00:5e:10:00:02", "192.0.2.2", "2001:db8::2"},
};

/* The shell splits the line at spaces. */
static void exec_ip(const char *line)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* stdout carries the JSON Lines. */
	dup2(STDERR_FILENO, STDOUT_FILENO);
	/* A user's PATH on Debian lacks the sbin directories. */
	setenv("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", 1);
	execl("/bin/sh", "sh", "-c", "set -f; exec $0", line, NULL);
	_exit(127);
}

int net_ip(const char *fmt, ...)
{
	char line[256];
	int status = 0;
	va_list ap;
	pid_t pid;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pid = fork();
	if (!pid)
		exec_ip(line);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return fail(-errno, "cannot run '%s': %s", line, strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return fail(-ENOENT, "cannot run 'ip' or 'tc': install iproute2");
	return status ? fail(-EIO, "'%s' failed", line) : 0;
}

int net_own_namespace(void)
{
	if (!unshare(CLONE_NEWNET))
		return 0;
	return fail(-errno, "cannot make a network namespace: %s%s", strerror(errno),
		    errno == EPERM ? "; it needs CAP_SYS_ADMIN, run as root" : "");
}

int net_namespace_inode(uint64_t *inode)
{
	struct stat st;

	if (stat("/proc/self/ns/net", &st))
		return fail(-errno, "cannot read /proc/self/ns/net: %s", strerror(errno));
	*inode = st.st_ino;
	return 0;
}

/* IPv6 cannot change the kernel's own route, whose metric 0 no command line can name. */
static int loopback_quickack(uint64_t family)
{
	int err;

	if (family == 4)
		return net_ip("ip route change local 127.0.0.1 dev lo table local proto kernel "
			      "scope host src 127.0.0.1 quickack 1");
	err = net_ip("ip -6 route add local ::1 dev lo table local metric 1 quickack 1");
	return err ? err : net_ip("ip -6 route del local ::1 dev lo table local");
}

int net_loopback_up(const struct lab_plan *plan)
{
	int err = net_ip("ip link set lo up");

	if (!err && plan->opt.quickack_route)
		err = loopback_quickack(plan->opt.family);
	return err;
}

/* Two different interface numbers make the link watch urgent; with equal ones it takes a second. */
int net_veth_create(int peer_pid)
{
	return net_ip(
		"ip link add %s index 10 address %s type veth peer name %s index 11 address %s "
		"netns %d",
		veth[LAB_CLIENT].link, veth[LAB_CLIENT].mac, veth[LAB_SERVER].link,
		veth[LAB_SERVER].mac, peer_pid);
}

/* The middle has these interfaces, one to each end. */
static const char *const port[LAB_SIDES] = {"to-client", "to-server"};

int net_veth_to_middle(enum lab_side side, int middle_pid)
{
	return net_ip("ip link add %s index %d address %s type veth peer name %s index %d netns %d",
		      veth[side].link, 10 + 2 * side, veth[side].mac, port[side], 11 + 2 * side,
		      middle_pid);
}

int net_middle(const struct lab_options *opt)
{
	return shape_middle(opt, port);
}

/*
 * Until the kernel's link watch has run, IPv6 drops what comes in: the SYN would be answered a
 * second late, and the retransmission timer would remember that for the whole connection.
 */
int net_veth_running(enum lab_side side)
{
	uint64_t give_up = now_ns() + 5 * LAB_SEC;
	struct ifreq ifr = {};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? -errno : 0;

	strncpy(ifr.ifr_name, veth[side].link, IFNAMSIZ - 1);
	while (!err) {
		if (ioctl(fd, SIOCGIFFLAGS, &ifr))
			err = -errno;
		else if (ifr.ifr_flags & IFF_RUNNING)
			break;
		else if (now_ns() > give_up)
			err = -ETIMEDOUT;
		else
			sleep_ns(LAB_MSEC);
	}
	if (fd >= 0)
		close(fd);
	return err ? fail(err, "veth '%s' does not come up: %s", veth[side].link, strerror(-err))
		   : 0;
}

/* Gives the route to the other end these metrics too, in the words of ip-route. */
static int veth_route(enum lab_side side, uint64_t family, const char *metrics)
{
	const char *link = veth[side].link;

	if (family == 6)
		return net_ip("ip -6 route change 2001:db8::/64 dev %s proto kernel metric 256 %s",
			      link, metrics);
	return net_ip("ip route change 192.0.2.0/24 dev %s proto kernel scope link src %s %s", link,
		      veth[side].ip4, metrics);
}

static int veth_metrics(const struct lab_options *opt, enum lab_side side)
{
	char metrics[64];

	if (opt->quickack_route)
		return side == LAB_SERVER ? veth_route(side, opt->family, "quickack 1") : 0;
	if (!opt->rto_min_ns)
		return 0;
	snprintf(metrics, sizeof(metrics), "rto_min %llums",
		 (unsigned long long)(opt->rto_min_ns / LAB_MSEC));
	return veth_route(side, opt->family, metrics);
}

/* Sets a value of this namespace, which the lab made: scenarios.c. */
int net_sysctl(const char *name, const char *value)
{
	char path[128];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	err = fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return err ? fail(err, "cannot set %s to %s: %s", path, value, strerror(-err)) : 0;
}

static int veth_addresses(enum lab_side side)
{
	const char *link = veth[side].link;
	int err = net_ip("ip addr add %s/24 dev %s", veth[side].ip4, link);

	/* nodad: an address in duplicate detection cannot be bound for a second. */
	return err ? err : net_ip("ip addr add %s/64 dev %s nodad", veth[side].ip6, link);
}

int net_veth_up(const struct lab_plan *plan, enum lab_side side)
{
	const char *link = veth[side].link;
	int err = veth_addresses(side);

	if (!err)
		err = net_ip("ip link set %s mtu 1500 up", link);
	/* Without ARP and neighbour discovery the first round trip is as short as the others. */
	if (!err)
		err = net_ip("ip neigh replace %s lladdr %s dev %s", veth[!side].ip4,
			     veth[!side].mac, link);
	if (!err)
		err = net_ip("ip neigh replace %s lladdr %s dev %s", veth[!side].ip6,
			     veth[!side].mac, link);
	if (!err)
		err = veth_metrics(&plan->opt, side);
	if (!err && plan->opt.fast_open)
		/* for clients and servers, without cookies */
		err = net_sysctl("net/ipv4/tcp_fastopen", "519");
	return err ? err : shape_link(&plan->opt, link);
}

static const char *server_address(const struct lab_options *opt)
{
	if (opt->family == 6)
		return opt->over_veth ? veth[LAB_SERVER].ip6 : "::1";
	return opt->over_veth ? veth[LAB_SERVER].ip4 : "127.0.0.1";
}

static socklen_t fill_address(const struct lab_options *opt, uint16_t port,
			      struct sockaddr_storage *out)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	char text[64];

	memset(out, 0, sizeof(*out));
	if (opt->family == 4 && !opt->v4_mapped) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(port);
		inet_pton(AF_INET, server_address(opt), &in4->sin_addr);
		return sizeof(*in4);
	}
	snprintf(text, sizeof(text), "%s%s", opt->v4_mapped ? "::ffff:" : "", server_address(opt));
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	inet_pton(AF_INET6, text, &in6->sin6_addr);
	return sizeof(*in6);
}

int net_listen(struct lab_end *end)
{
	const struct lab_options *opt = &end->plan->opt;
	struct sockaddr_storage at;
	socklen_t len = fill_address(opt, (uint16_t)opt->port, &at);
	int fd = socket_new(end->plan);
	int err;

	if (fd < 0)
		return fd;
	end->listener = fd;
	if (opt->any_address && at.ss_family == AF_INET)
		((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_ANY);
	else if (opt->any_address)
		((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_any;
	err = socket_before_listen(fd, opt);
	if (err)
		return err;
	if (bind(fd, (struct sockaddr *)&at, len) || listen(fd, SOMAXCONN))
		return fail(-errno, "cannot listen on %s port %u: %s; try another --port",
			    server_address(opt), (unsigned int)opt->port, strerror(errno));
	len = sizeof(at);
	if (getsockname(fd, (struct sockaddr *)&at, &len))
		return fail(-errno, "cannot read the listener's port: %s", strerror(errno));
	end->port = ntohs(((struct sockaddr_in *)&at)->sin_port);
	return 0;
}

static int bind_client(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	struct sockaddr_in6 any = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)opt->client_port)};
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = any.sin6_port};
	bool v4 = opt->family == 4 && !opt->v4_mapped;

	if (!opt->client_port)
		return 0;
	if (!bind(c->fd, v4 ? (struct sockaddr *)&any4 : (struct sockaddr *)&any,
		  v4 ? sizeof(any4) : sizeof(any)))
		return 0;
	return fail(-errno, "cannot bind --client-port %u: %s", (unsigned int)opt->client_port,
		    strerror(errno));
}

int net_connect(struct lab_conn *c, uint16_t port)
{
	const struct lab_options *opt = &c->end->plan->opt;
	struct sockaddr_storage to;
	socklen_t len = fill_address(opt, port, &to);
	uint64_t give_up = now_ns() + 5 * LAB_SEC;
	int err = bind_client(c);

	if (err)
		return err;
	while (connect(c->fd, (struct sockaddr *)&to, len)) {
		/* IPv6 on a veth that just came up has no route for a moment. */
		bool young =
			errno == ENETUNREACH || errno == EADDRNOTAVAIL || errno == EHOSTUNREACH;

		if (!young || now_ns() > give_up)
			return fail(-errno, "cannot connect to %s port %u: %s", server_address(opt),
				    port, strerror(errno));
		sleep_ns(LAB_MSEC);
	}
	if (opt->epoll && fcntl(c->fd, F_SETFL, O_NONBLOCK))
		return fail(-errno, "cannot make a socket non-blocking: %s", strerror(errno));
	c->sent = c->received = 0;
	c->port = net_port(c->fd, false);
	return 0;
}

/* Returns 0 if there is no port yet. */
uint16_t net_port(int fd, bool peer)
{
	struct sockaddr_in6 at = {};
	socklen_t len = sizeof(at);

	if (peer)
		getpeername(fd, (struct sockaddr *)&at, &len);
	else
		getsockname(fd, (struct sockaddr *)&at, &len);
	return ntohs(at.sin6_port);
}

static int name_of(int fd, bool peer, char *buf, size_t size)
{
	struct sockaddr_storage at;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at;
	socklen_t len = sizeof(at);
	char text[INET6_ADDRSTRLEN];
	int ret;

	ret = peer ? getpeername(fd, (struct sockaddr *)&at, &len)
		   : getsockname(fd, (struct sockaddr *)&at, &len);
	if (ret)
		return fail(-errno, "cannot read a socket's address: %s", strerror(errno));
	if (at.ss_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)&at)->sin_addr, text, sizeof(text));
	else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], text, sizeof(text));
	else
		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
	snprintf(buf, size, strchr(text, ':') ? "[%s]:%u" : "%s:%u", text, ntohs(in6->sin6_port));
	return 0;
}

int net_names(struct lab_conn *c, char *local, char *peer, size_t size)
{
	int err = name_of(c->fd, false, local, size);

	return err ? err : name_of(c->fd, true, peer, size);
}
