// SPDX-License-Identifier: GPL-2.0
#include "sample/places.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/each_process.h"
#include "base/grow.h"

int nt_places_open(struct nt_places *places)
{
	struct stat status;

	memset(places, 0, sizeof(*places));
	places->own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (places->own < 0 || fstat(places->own, &status))
		return -errno;
	places->own_netns = status.st_ino;
	return 0;
}

void nt_places_close(struct nt_places *places)
{
	if (places->own >= 0)
		close(places->own);
	free(places->list);
	places->list = NULL;
	places->own = -1;
}

/* Adds a namespace unless the list has it; a host has few, so we look at each. */
static int add(struct nt_places *places, uint64_t netns, pid_t pid)
{
	for (size_t i = 0; i < places->count; i++)
		if (places->list[i].netns == netns)
			return 0;
	if (places->count == places->room &&
	    nt_grow(&places->list, &places->room, sizeof(*places->list)))
		return -ENOMEM;
	places->list[places->count++] = (struct nt_place){netns, pid};
	return 0;
}

struct scanning {
	struct nt_places *places;
	uint64_t only; /* this namespace; 0: all */
};

static int add_process(void *context, pid_t pid)
{
	const struct scanning *scanning = context;
	struct stat status;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &status)) {
		scanning->places->hidden |= errno == EACCES || errno == EPERM;
		return 0;
	}
	if (scanning->only && status.st_ino != scanning->only)
		return 0;
	return add(scanning->places, status.st_ino, pid);
}

int nt_places_scan(struct nt_places *places, uint64_t netns)
{
	struct scanning scanning = {places, netns};
	int err = 0;

	places->count = 0;
	places->hidden = false;
	if (!netns || netns == places->own_netns)
		err = add(places, places->own_netns, 0);
	return err ? err : nt_each_process(add_process, &scanning);
}

int nt_places_enter(const struct nt_places *places, const struct nt_place *place)
{
	struct stat status;
	char path[64];
	int fd, err = 0;

	if (!place->pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", place->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	/* the process may have moved, or its number may be another's by now */
	if (fstat(fd, &status) || status.st_ino != place->netns)
		err = -ESRCH;
	else if (setns(fd, CLONE_NEWNET))
		err = -errno;
	close(fd);
	return err;
}

int nt_places_leave(const struct nt_places *places, const struct nt_place *place)
{
	return place->pid && setns(places->own, CLONE_NEWNET) ? -errno : 0;
}
