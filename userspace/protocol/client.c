// SPDX-License-Identifier: GPL-2.0
#include "protocol/client.h"

#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/request.h"
#include "base/text.h"

int nt_client_connect(const char *path, bool waits)
{
	const struct timeval patience = {.tv_sec = NT_CLIENT_PATIENCE_S};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0);

	if (fd < 0)
		return -errno;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr))) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int nt_client_ask(int fd, const char *format, ...)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "{\"protocol\":%d,", NT_PROTOCOL);
	va_list args;
	ssize_t sent;

	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - n, format, args);
	va_end(args);
	if (n + 2 >= (int)sizeof(line))
		return -EMSGSIZE;
	n += snprintf(line + n, sizeof(line) - n, "}\n");
	sent = send(fd, line, n, MSG_NOSIGNAL);
	if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
		return 0; /* it refuses requests, and has sent the reason: the caller can read it */
	if (sent < 0)
		return -errno;
	return sent == n ? 0 : -EAGAIN;
}

/*
 * Names the group that one has to be in: the socket's, or, if others may not see the socket, its
 * directory's.
 */
static const char *not_permitted(const char *path, char *out, size_t size)
{
	char directory[NT_SOCKET_PATH_LEN], name[64] = "unknown";
	const struct group *group;
	char *slash;
	struct stat st;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash)
		slash[slash == directory] = '\0';
	if (!stat(path, &st) || (slash && !stat(directory, &st))) {
		group = getgrgid(st.st_gid);
		if (group)
			nt_escape(group->gr_name, strlen(group->gr_name), name, sizeof(name));
		else
			snprintf(name, sizeof(name), "%u", st.st_gid);
	}
	snprintf(out, size,
		 "not permitted; be of its group, %s, or give `nagletrace daemon` another --group",
		 name);
	return out;
}

void nt_client_explain(const char *path, int err, struct nt_error *error)
{
	char shown[NT_ESCAPED_LEN(NT_SOCKET_PATH_LEN)];
	const char *what = strerror(err);
	char refused[192];

	if (err == ENOENT || err == ECONNREFUSED)
		what = "no daemon serves it; start `nagletrace daemon`, or give its --socket";
	else if (err == EACCES)
		what = not_permitted(path, refused, sizeof(refused));
	else if (err == EAGAIN)
		what = "the daemon does not answer; look at its log, or restart it";
	else if (err == ENODATA)
		what = "the daemon has ended";
	else if (err == EMSGSIZE)
		what = "the daemon's answer is longer than 32 MiB; start `nagletrace daemon` with "
		       "a smaller --max-connections";
	else if (err == EPROTO)
		what = "what answers is no nagletrace daemon; give its --socket";
	nt_escape(path, strlen(path), shown, sizeof(shown));
	nt_error_set(error, err == EACCES ? NT_EXIT_PERMISSION : NT_EXIT_FAILED, "--socket %s: %s",
		     shown, what);
}
