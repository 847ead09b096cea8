// SPDX-License-Identifier: GPL-2.0
#include "sample/by_diag.h"

#include <dirent.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/each_process.h"
#include "base/grow.h"
#include "attach/kernel.h"

#define TCP_ESTABLISHED 1
#define TCP_CLOSE_WAIT  8
#define PATIENCE_S      5 /* the kernel answers at once, or not at all */

int nt_by_diag_open(struct nt_by_diag *by)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct stat status;

	memset(by, 0, sizeof(*by));
	by->tick_ns = nt_kernel_tick_ns();
	if (!stat("/proc/self/ns/net", &status))
		by->netns = status.st_ino;
	by->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (by->fd < 0)
		return -errno;
	setsockopt(by->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return 0;
}

void nt_by_diag_close(struct nt_by_diag *by)
{
	if (by->fd >= 0)
		close(by->fd);
	free(by->owners);
	by->owners = NULL;
	by->fd = -1;
}

/* ---- the sockets ---- */

static int ask(struct nt_by_diag *by, int family)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 request;
	} message = {
		.head = {.nlmsg_len = sizeof(message),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
			 .nlmsg_seq = ++by->request},
		.request = {.sdiag_family = family,
			    .sdiag_protocol = IPPROTO_TCP,
			    .idiag_ext = 1 << (INET_DIAG_INFO - 1),
			    .idiag_states = 1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT},
	};
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	if (sendto(by->fd, &message, sizeof(message), 0, (const void *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

struct taking {
	const struct nt_by_diag *by;
	nt_sampled_take *take;
	void *context;
};

/* Returns a number from -range / 2 to range / 2. */
static int64_t random_around_zero(uint64_t range)
{
	uint64_t random = 0;

	if (!range || getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		return 0;
	return (int64_t)(random % range) - (int64_t)(range / 2);
}

/*
 * The kernel counts its silence in ticks, which would make all looks that fall between two limits
 * fall on one side of them. Spread over the tick, they are right in the mean.
 */
static void take_one(void *context, const struct nt_sampled *sampled)
{
	const struct taking *taking = context;
	struct nt_sampled noisy = *sampled;
	int64_t silent_ns = noisy.silent_ns + random_around_zero(taking->by->tick_ns);

	noisy.time_ns = nt_now_ns();
	noisy.silent_ns = silent_ns > 0 ? silent_ns : 0;
	if (noisy.untouched_ns)
		noisy.untouched_ns = noisy.silent_ns;
	noisy.end.tuple.netns = taking->by->netns;
	taking->take(taking->context, &noisy);
}

static int take_answers(struct nt_by_diag *by, nt_sampled_take *take, void *context)
{
	struct taking taking = {by, take, context};
	char datagram[32768] __attribute__((aligned(8)));
	int more;

	do {
		struct sockaddr_nl from = {};
		struct iovec part = {datagram, sizeof(datagram)};
		struct msghdr message = {.msg_name = &from,
					 .msg_namelen = sizeof(from),
					 .msg_iov = &part,
					 .msg_iovlen = 1};
		ssize_t n = recvmsg(by->fd, &message, 0);

		if (n < 0 && errno == EINTR) {
			more = 1;
			continue;
		}
		if (n <= 0)
			return n ? -errno : -EPROTO;
		if (message.msg_flags & MSG_TRUNC)
			return -EMSGSIZE;
		/* only the kernel is number 0: any process may write to our socket */
		more = from.nl_pid ? 1 : nt_diag_parse(datagram, n, by->request, take_one, &taking);
	} while (more > 0);
	return more;
}

int nt_by_diag_look(struct nt_by_diag *by, nt_sampled_take *take, void *context)
{
	static const int families[] = {AF_INET, AF_INET6};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(families) / sizeof(families[0]); i++) {
		err = ask(by, families[i]);
		if (!err)
			err = take_answers(by, take, context);
		/* a kernel without IPv6 has no sockets of it */
		if (err == -ENOENT && families[i] == AF_INET6)
			err = 0;
	}
	return err;
}

/* ---- their processes ---- */

static int add_owner(struct nt_by_diag *by, uint64_t inode, uint32_t tgid)
{
	if (by->n_owners == by->room && nt_grow(&by->owners, &by->room, sizeof(*by->owners)))
		return -ENOMEM;
	by->owners[by->n_owners++] = (struct nt_inode_owner){inode, tgid};
	return 0;
}

/* Adds the sockets of a process; nothing if it is another user's, or gone. */
static int add_sockets(void *context, pid_t pid)
{
	struct nt_by_diag *by = context;
	const struct dirent *entry;
	char path[64], link[64];
	int err = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && !err && (entry = readdir(fds))) {
		unsigned long long inode;
		ssize_t n = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		if (sscanf(link, "socket:[%llu]", &inode) == 1)
			err = add_owner(by, inode, pid);
	}
	if (fds)
		closedir(fds);
	return err;
}

static int compare(const void *left, const void *right)
{
	const struct nt_inode_owner *a = left, *b = right;

	if (a->inode != b->inode)
		return a->inode < b->inode ? -1 : 1;
	return a->tgid < b->tgid ? -1 : a->tgid > b->tgid;
}

int nt_by_diag_scan(struct nt_by_diag *by)
{
	int err;

	by->n_owners = 0;
	err = nt_each_process(add_sockets, by);
	if (by->n_owners)
		qsort(by->owners, by->n_owners, sizeof(*by->owners), compare);
	return err;
}

const struct nt_inode_owner *nt_by_diag_owners(const struct nt_by_diag *by, uint64_t inode,
					       size_t *count)
{
	size_t low = 0, high = by->n_owners;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (by->owners[middle].inode < inode)
			low = middle + 1;
		else
			high = middle;
	}
	for (*count = 0; low + *count < by->n_owners; ++*count)
		if (by->owners[low + *count].inode != inode)
			break;
	return *count ? &by->owners[low] : NULL;
}
