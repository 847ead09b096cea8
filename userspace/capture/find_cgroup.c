// SPDX-License-Identifier: GPL-2.0
#include "capture/find_cgroup.h"

#include <errno.h>
#include <fts.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

#include "terms/container.h"

struct search {
	enum nt_cgroup_by by;
	const char *name;
	char found[NT_CGROUP_LEN], other[NT_CGROUP_LEN]; /* "": none */
};

/* How a message names what was not found, and what helps. */
static const struct {
	const char *option, *missing;
} ways[] = {
	[NT_CGROUP_CONTAINER] = {"--container",
				 "no such container runs; `docker ps` or `podman ps` "
				 "lists them"},
	[NT_CGROUP_POD] = {"--pod",
			   "no such pod runs here; `kubectl get pods -o wide` shows where, "
			   "and -o yaml its uid"},
	[NT_CGROUP_UNIT] = {"--unit", "no such unit runs; `systemctl list-units` lists them"},
};

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
	nt_container_of_path(path, strlen(path), &container);
	return search->by == NT_CGROUP_POD
		       ? !strcmp(container.pod_uid, search->name)
		       : !strncmp(container.id, search->name, strlen(search->name));
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

		if (entry->fts_info != FTS_D || !entry->fts_level || !matches(search, path))
			continue;
		fts_set(tree, entry, FTS_SKIP);
		snprintf(search->found[0] ? search->other : search->found, NT_CGROUP_LEN, "%s",
			 path);
	}
	fts_close(tree);
	return 0;
}

/* Asks the runtimes for the ID of a container; false: none has one of that name, which was checked
 * by options_table.c and means nothing to a shell. */
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
		if (answer)
			pclose(answer);
	}
	if (found)
		id[strcspn(id, "\n")] = '\0';
	return found && id[0];
}

bool nt_find_cgroup(const struct nt_settings *settings, char path[NT_CGROUP_LEN],
		    struct nt_error *error)
{
	struct search search = {.by = settings->cgroup_by, .name = settings->cgroup};
	const char *option = ways[search.by].option;
	char id[NT_CONTAINER_ID_LEN + 1];
	int err = walk(&search);

	if (!err && !search.found[0] && search.by == NT_CGROUP_CONTAINER &&
	    ask_runtimes(search.name, id)) {
		search.name = id;
		err = walk(&search);
	}
	if (err)
		return nt_error_set(error, NT_EXIT_USAGE, "%s %s: cannot search cgroup v2: %s",
				    option, settings->cgroup, strerror(-err));
	if (!search.found[0])
		return nt_error_set(error, NT_EXIT_USAGE, "%s %s: %s", option, settings->cgroup,
				    ways[search.by].missing);
	if (search.other[0])
		return nt_error_set(error, NT_EXIT_USAGE,
				    "%s %s: more than one cgroup has that name; give --cgroup %s "
				    "or --cgroup %s",
				    option, settings->cgroup, search.found, search.other);
	memcpy(path, search.found, NT_CGROUP_LEN);
	return true;
}
