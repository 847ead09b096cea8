// SPDX-License-Identifier: GPL-2.0
#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "numbers.h"

int nt_notify(const char *state)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	int fd, err = 0;

	if (!length)
		return 0;
	if (length >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -EINVAL;
	memcpy(addr.sun_path, path, length);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* an abstract one */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&addr,
		   offsetof(struct sockaddr_un, sun_path) + length) < 0)
		err = -errno;
	close(fd);
	return err;
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
