// SPDX-License-Identifier: GPL-2.0
#include "capture/find_cgroup.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/text.h"
#include "terms/container.h"

struct search {
	enum nt_cgroup_by by;
	const char *name;
	char found[PATH_MAX], other[PATH_MAX]; /* "": none */
};

/* The digits of an ID that docker shows: fewer may be a name, or begin the ID of another. */
#define ENOUGH_DIGITS 12

#define SHOWN         100 /* bytes of a name or path, in a message about it */

/* How a message names what was not found, and what helps. */
static const struct {
	const char *option, *missing;
} ways[] = {
	[NT_CGROUP_PATH] = {"--cgroup", NULL},
	[NT_CGROUP_CONTAINER] = {"--container",
				 "no such container runs; `docker ps` or `podman ps` "
				 "lists them"},
	[NT_CGROUP_POD] = {"--pod",
			   "no such pod runs here; `kubectl get pods -o wide` shows where, "
			   "and -o yaml its uid"},
	[NT_CGROUP_UNIT] = {"--unit", "no such unit runs; `systemctl list-units` lists them"},
};

const char *nt_cgroup_option(const struct nt_settings *settings)
{
	return ways[settings->cgroup_by].option;
}

const char *nt_cgroup_mount(void)
{
	static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	struct statfs fs;

	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++)
		if (!statfs(mounts[i], &fs) && fs.f_type == CGROUP2_SUPER_MAGIC)
			return mounts[i];
	return NULL;
}

static bool matches(const struct search *search, const char *path)
{
	struct nt_container container;

	if (search->by == NT_CGROUP_UNIT)
		return !strcmp(strrchr(path, '/') + 1, search->name);
	nt_container_of_path(path, &container);
	return search->by == NT_CGROUP_POD
		       ? !strcmp(container.pod_uid, search->name)
		       : !strncmp(container.id, search->name, strlen(search->name));
}

/*
 * The system's units lie in slices alone. What lies in a service or a scope belongs to its owner,
 * who may give it any name: a user's own manager is one.
 */
static bool may_hold_units(const char *path)
{
	size_t length = strlen(path), end = strlen(".slice");

	return length >= end && !strcmp(path + length - end, ".slice");
}

/* Notes the outermost cgroups that match: what is below one belongs to it. Returns 0 or -errno. */
static int walk(struct search *search)
{
	const char *mount = nt_cgroup_mount();
	char *const roots[] = {(char *)mount, NULL};
	FTS *tree;
	FTSENT *entry;

	search->found[0] = search->other[0] = '\0';
	tree = mount ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
	if (!tree)
		return mount ? -errno : -ENOENT;
	while ((entry = fts_read(tree))) {
		const char *path = entry->fts_path + strlen(mount);
		bool found;

		if (entry->fts_info != FTS_D || !entry->fts_level)
			continue;
		found = matches(search, path);
		if (found)
			snprintf(search->found[0] ? search->other : search->found, PATH_MAX, "%s",
				 path);
		if (found || (search->by == NT_CGROUP_UNIT && !may_hold_units(path)))
			fts_set(tree, entry, FTS_SKIP);
	}
	fts_close(tree);
	return 0;
}

static bool is_id(const char *text, size_t least)
{
	size_t length = strspn(text, "0123456789abcdef");

	return length >= least && length < NT_CONTAINER_ID_LEN && !text[length];
}

/*
 * Asks the runtimes for the ID of a container; false: none knows one of that name. The name means
 * nothing to a shell, as options_table.c has checked.
 */
static bool ask_runtimes(const char *name, char id[NT_CONTAINER_ID_LEN + 1])
{
	static const char *const runtimes[] = {"docker", "podman", "nerdctl"};
	bool found = false;
	char command[256];

	for (size_t i = 0; !found && i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
		FILE *answer;

		snprintf(command, sizeof(command),
			 "timeout 3 %s container inspect --format '{{.ID}}' %s 2>/dev/null",
			 runtimes[i], name);
		answer = popen(command, "re");
		found = answer && fgets(id, NT_CONTAINER_ID_LEN + 1, answer);
		found = answer && !pclose(answer) && found;
		if (found)
			id[strcspn(id, "\n")] = '\0';
		found = found && is_id(id, NT_CONTAINER_ID_LEN - 1);
	}
	return found;
}

bool nt_find_cgroup(const struct nt_settings *settings, char path[PATH_MAX], struct nt_error *error)
{
	struct search search = {.by = settings->cgroup_by, .name = settings->cgroup};
	const char *option = ways[search.by].option;
	char id[NT_CONTAINER_ID_LEN + 1], found[NT_ESCAPED_LEN(SHOWN)],
		other[NT_ESCAPED_LEN(SHOWN)];
	bool known = true;
	int err;

	if (search.by == NT_CGROUP_CONTAINER && !is_id(search.name, ENOUGH_DIGITS)) {
		known = ask_runtimes(search.name, id);
		search.name = id;
	}
	err = known ? walk(&search) : 0;
	nt_escape(settings->cgroup, SHOWN, other, sizeof(other));
	if (err)
		return nt_error_set(error, NT_EXIT_USAGE, "%s %s: cannot search cgroup v2: %s",
				    option, other, strerror(-err));
	if (!known || !search.found[0])
		return nt_error_set(error, NT_EXIT_USAGE, "%s %s: %s", option, other,
				    ways[search.by].missing);
	memcpy(path, search.found, PATH_MAX);
	if (!search.other[0])
		return true;
	nt_escape(search.found, SHOWN, found, sizeof(found));
	nt_escape(search.other, SHOWN, other, sizeof(other));
	return nt_error_set(error, NT_EXIT_USAGE,
			    "%s: more than one cgroup has that name; give --cgroup %s or --cgroup "
			    "%s",
			    option, found, other);
}
