// SPDX-License-Identifier: GPL-2.0
#include "fix_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

FILE *nt_fix_begin_output(struct nt_fix_output *output)
{
	memset(output, 0, sizeof(*output));
	output->file = open_memstream(&output->text, &output->size);
	return output->file;
}

static int write_out(const char *text, size_t size, int signals)
{
	struct pollfd fds[] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
			       {.fd = signals, .events = POLLIN}};

	while (size) {
		ssize_t n;

		if (poll(fds, 2, -1) < 0)
			continue; /* a harmless signal */
		if (!fds[0].revents)
			return -EINTR;
		/* so much has room in a pipe that has any */
		n = write(STDOUT_FILENO, text, size < PIPE_BUF ? size : PIPE_BUF);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (n > 0) {
			text += n;
			size -= n;
		}
	}
	return 0;
}

int nt_fix_end_output(struct nt_fix_output *output, int err, int signals)
{
	if (fclose(output->file) && !err)
		err = -errno;
	if (!err)
		err = write_out(output->text, output->size, signals);
	free(output->text);
	return err;
}

void nt_fix_forget_signals(int signals)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == sizeof(info))
		;
}
