// SPDX-License-Identifier: GPL-2.0
#include "fix/open_sockets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/each_process.h"
#include "base/grow.h"

#define PATH_LEN 64

/* Says whether a process is in the namespace. process: its /proc/... up to the name of a file. */
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

struct finding {
	uint32_t netns;
	char *path; /* of PATH_LEN bytes */
	int err;
};

static int is_found(void *context, pid_t pid)
{
	struct finding *finding = context;

	snprintf(finding->path, PATH_LEN, "/proc/%d", pid);
	return is_in(finding->path, finding->netns, &finding->err);
}

/* Finds a process that is in the namespace. Returns 0, -ESRCH if there is none, or -errno if there
 * may be one. */
static int find_process(uint32_t netns, const struct nt_owners *owners, char path[PATH_LEN])
{
	struct finding finding = {netns, path, -ESRCH};
	int result;

	snprintf(path, PATH_LEN, "/proc/self");
	if (is_in(path, netns, &finding.err))
		return 0;
	for (size_t i = 0; i < owners->list.count; i++) {
		const struct nt_owner *owner = &owners->list.owners[i];

		snprintf(path, PATH_LEN, "/proc/%u/task/%u", owner->tgid, owner->tid);
		if (owner->tuple.netns == netns && is_in(path, netns, &finding.err))
			return 0;
	}
	result = nt_each_process(is_found, &finding);
	if (result < 0)
		return result;
	return result ? 0 : finding.err;
}

static int add(struct nt_open_sockets *open, uint64_t inode)
{
	if (open->count == open->room && nt_grow(&open->inodes, &open->room, sizeof(*open->inodes)))
		return -ENOMEM;
	open->inodes[open->count++] = inode;
	return 0;
}

/* Skips inode 0: no descriptor refers to that connection, which lingers after close(). */
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
	/* read tcp first: if it is there, the process is; a missing tcp6 then means that there is
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
