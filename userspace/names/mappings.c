// SPDX-License-Identifier: GPL-2.0
#include "names/mappings.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- the lines ---- */

static bool take_number(const char **at, int base, const char *ends, uint64_t *number)
{
	char *after;

	if (!isxdigit((unsigned char)**at))
		return false;
	*number = strtoull(*at, &after, base);
	if (after == *at || !*after || !strchr(ends, *after))
		return false;
	*at = after + 1;
	return true;
}

/*
 * Parses "start-end mode offset major:minor inode   path", fs/proc/task_mmu.c. The path stays in
 * the line. False: it is no such line, or what is mapped is no code.
 */
static bool parse(char *line, struct nt_mapping *m)
{
	uint64_t device_major, device_minor;
	const char *at = line;
	size_t mode;

	*m = (struct nt_mapping){.fd = -1};
	if (!take_number(&at, 16, "-", &m->start) || !take_number(&at, 16, " ", &m->end))
		return false;
	mode = strcspn(at, " ");
	if (!memchr(at, 'x', mode) || at[mode] != ' ')
		return false;
	at += mode + 1;
	if (!take_number(&at, 16, " ", &m->offset) || !take_number(&at, 16, ":", &device_major) ||
	    !take_number(&at, 16, " ", &device_minor) || !take_number(&at, 10, " \n", &m->inode))
		return false;
	m->device = makedev(device_major, device_minor);
	at += strspn(at, " ");
	m->path = line + (at - line);
	m->path[strcspn(m->path, "\n")] = '\0';
	return m->start < m->end;
}

static bool is_hit(const struct nt_mapping *m, const uint64_t *addresses, size_t n)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (addresses[middle] < m->start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && addresses[low] <= m->end;
}

static int keep(struct nt_mappings *mappings, const struct nt_mapping *m)
{
	struct nt_mapping *kept = &mappings->list[mappings->count];

	if (mappings->count == NT_MAPPINGS_MOST) {
		mappings->full = true;
		return 0;
	}
	*kept = *m;
	kept->path = strndup(m->path, PATH_MAX);
	if (!kept->path)
		return -ENOMEM;
	mappings->count++;
	return 0;
}

int nt_mappings_read(FILE *maps, const uint64_t *addresses, size_t n, struct nt_mappings *mappings)
{
	struct nt_mapping m;
	char *line = NULL;
	size_t room = 0;
	int err = 0;

	mappings->count = mappings->lines = 0;
	mappings->full = false;
	for (; !err && getline(&line, &room, maps) > 0; mappings->lines++)
		if (parse(line, &m) && is_hit(&m, addresses, n))
			err = keep(mappings, &m);
	free(line);
	return err;
}

/* ---- the files ---- */

/*
 * Refers to the file by its name, from the process's own root: no link leads out of it. The name
 * may stand for another file by now, so we compare inode numbers. On btrfs and overlayfs, stat()
 * shows another device than the kernel shows for a mapping.
 */
static int refer_by_name(pid_t pid, const struct nt_mapping *m)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	struct statfs fs;
	struct stat st;
	char path[32];
	int root, fd;

	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -1;
	fd = syscall(SYS_openat2, root, m->path, &how, sizeof(how));
	close(root);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_ino == m->inode &&
	    (st.st_dev == m->device || (!fstatfs(fd, &fs) && (fs.f_type == OVERLAYFS_SUPER_MAGIC ||
							      fs.f_type == BTRFS_SUPER_MAGIC))))
		return fd;
	close(fd);
	return -1;
}

/*
 * Gets a reference first, which does not open the file: a device or a FIFO does not notice it. Only
 * a regular file is then opened, by that reference, so that nobody can put another file in its
 * place meanwhile.
 */
static int open_mapped(pid_t pid, const struct nt_mapping *m)
{
	char path[80];
	struct stat st;
	int reference, fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m->start,
		 m->end);
	reference = open(path, O_PATH | O_CLOEXEC);
	if (reference < 0) /* not permitted everywhere */
		reference = refer_by_name(pid, m);
	if (reference < 0)
		return -1;
	if (!fstat(reference, &st) && S_ISREG(st.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", reference);
		/* do not wait, for example for somebody's lease */
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	close(reference);
	return fd;
}

int nt_mappings_open(pid_t pid, const uint64_t *addresses, size_t n, struct nt_mappings *mappings)
{
	char path[32];
	FILE *maps;
	int err;

	mappings->count = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return errno == ENOENT ? -ESRCH : -errno;
	err = nt_mappings_read(maps, addresses, n, mappings);
	fclose(maps);
	if (!err && !mappings->lines)
		return -ESRCH; /* it has ended, and its parent has not waited for it yet */
	for (size_t i = 0; !err && i < mappings->count; i++) {
		struct nt_mapping *m = &mappings->list[i];

		if (m->path[0] == '/' && m->inode)
			m->fd = open_mapped(pid, m);
	}
	return err;
}

void nt_mappings_free(struct nt_mappings *mappings)
{
	for (size_t i = 0; i < mappings->count; i++) {
		free(mappings->list[i].path);
		if (mappings->list[i].fd >= 0)
			close(mappings->list[i].fd);
	}
	mappings->count = 0;
}
