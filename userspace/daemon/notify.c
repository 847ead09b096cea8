// SPDX-License-Identifier: GPL-2.0
#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/numbers.h"

int nt_notify(const char *state)
{
	/* a manager that does not read (ten datagrams fill its queue: net.unix.max_dgram_qlen) must
	 * not block the daemon */
	const struct timeval patience = {.tv_usec = 100000};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	static int fd = -1; /* later there may be no descriptor left */

	if (!length)
		return 0;
	if (length >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -EINVAL;
	memcpy(addr.sun_path, path, length);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* the name is abstract */
	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&addr,
		      offsetof(struct sockaddr_un, sun_path) + length) < 0
		       ? -errno
		       : 0;
}

uint64_t nt_notify_interval_ns(void)
{
	const char *pid = getenv("WATCHDOG_PID"), *text = getenv("WATCHDOG_USEC");
	uint64_t us, whose;

	if (!text || !nt_parse_number(text, strlen(text), UINT32_MAX * 1000ULL, &us))
		return 0;
	if (pid &&
	    (!nt_parse_number(pid, strlen(pid), INT32_MAX, &whose) || whose != (uint64_t)getpid()))
		return 0;
	return us * 1000 / 2;
}
