// SPDX-License-Identifier: GPL-2.0
#include "open_sockets.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PATH_LEN 64

/* A process of the namespace: its /proc/... up to the name of a file. */
static bool is_in(const char *process, uint32_t netns, int *err)
{
	char path[PATH_LEN + 16];
	struct stat status;

	snprintf(path, sizeof(path), "%s/ns/net", process);
	if (!stat(path, &status))
		return status.st_ino == netns;
	if (errno != ENOENT && errno != ESRCH)
		*err = -errno;
	return false;
}

/* 0, -ESRCH: no process is in it, or -errno: there may be one. */
static int find_process(uint32_t netns, const struct nt_owners *owners, char path[PATH_LEN])
{
	const struct dirent *entry;
	int err = -ESRCH;
	DIR *all;

	snprintf(path, PATH_LEN, "/proc/self");
	if (is_in(path, netns, &err))
		return 0;
	for (size_t i = 0; i < owners->count; i++) {
		const struct nt_owner *owner = &owners->list[i];

		snprintf(path, PATH_LEN, "/proc/%u/task/%u", owner->tgid, owner->tid);
		if (owner->tuple.netns == netns && is_in(path, netns, &err))
			return 0;
	}
	all = opendir("/proc");
	if (!all)
		return -errno;
	while ((entry = readdir(all))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, PATH_LEN, "/proc/%.20s", entry->d_name);
		if (is_in(path, netns, &err)) {
			err = 0;
			break;
		}
	}
	closedir(all);
	return err;
}

static int add(struct nt_open_sockets *open, uint64_t inode)
{
	if (open->count == open->room) {
		size_t room = open->room ? 2 * open->room : 1024;
		uint64_t *inodes = realloc(open->inodes, room * sizeof(*inodes));

		if (!inodes)
			return -ENOMEM;
		open->inodes = inodes;
		open->room = room;
	}
	open->inodes[open->count++] = inode;
	return 0;
}

/* 0: what no descriptor refers to, as a connection that lingers after close() */
static int read_file(struct nt_open_sockets *open, const char *process, const char *name)
{
	char path[PATH_LEN + 16], line[512];
	int err = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/net/%s", process, name);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (!err && fgets(line, sizeof(line), file)) {
		uint64_t inode;

		if (sscanf(line, " %*u: %*s %*s %*s %*s %*s %*s %*u %*u %" SCNu64, &inode) == 1 &&
		    inode)
			err = add(open, inode);
	}
	if (!err && ferror(file))
		err = -EIO;
	fclose(file);
	return err;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int nt_open_sockets_read(struct nt_open_sockets *open, uint32_t netns,
			 const struct nt_owners *owners)
{
	char process[PATH_LEN];
	int err = find_process(netns, owners, process), err6;

	open->count = 0;
	if (err)
		return err;
	/* in this order: that tcp is there says that the process is, so that without tcp6 there is
	 * no IPv6 */
	err6 = read_file(open, process, "tcp6");
	err = read_file(open, process, "tcp");
	if (!err && err6 != -ENOENT)
		err = err6;
	if (err)
		return err == -ESRCH ? -EAGAIN : err;
	qsort(open->inodes, open->count, sizeof(*open->inodes), compare);
	return 0;
}

bool nt_open_sockets_has(const struct nt_open_sockets *open, uint64_t inode)
{
	return open->count &&
	       bsearch(&inode, open->inodes, open->count, sizeof(inode), compare) != NULL;
}

void nt_open_sockets_close(struct nt_open_sockets *open)
{
	free(open->inodes);
	*open = (struct nt_open_sockets){0};
}
