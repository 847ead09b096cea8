// SPDX-License-Identifier: GPL-2.0
/*
 * The names are those that these programs give:
 *
 *   kubelet (pkg/kubelet/cm/pod_container_manager_linux.go, GetPodContainerName();
 *   cgroup_manager_linux.go, ToCgroupfs() and ToSystemd()): the node's pods are below `kubepods`,
 *   those that are not guaranteed below its `burstable` and `besteffort`, and a pod is `pod` and
 *   its UID. The systemd driver joins these with `-`, writes a `-` inside one as `_`, and appends
 *   `.slice`. A pod from a file has a hash for its UID (pkg/kubelet/config/common.go,
 *   applyDefaults()): 32 digits, no UUID.
 *
 *   runtimes: a container is its ID under the cgroupfs driver (`crio-ID` of CRI-O, `libpod-ID` of
 *   Podman), and `PREFIX-ID.scope` under systemd. runc joins `parent:prefix:ID` to one name where
 *   it was given systemd's form and uses cgroupfs (libcontainer/specconv, CreateCgroupConfig()).
 *   The processes that watch containers are in `crio-conmon-ID.scope` and `libpod-conmon-ID.scope`,
 *   and in no container.
 */
#include "terms/container.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS   (NT_CONTAINER_ID_LEN - 1)
#define UUID_LEN    (NT_POD_UID_LEN - 1)
#define HASH_DIGITS 32

/* A part of the path, without an end of its own. */
struct part {
	const char *at;
	size_t length;
};

static struct part part_of(const char *at, size_t length)
{
	return (struct part){.at = at, .length = length};
}

static bool equals(struct part part, const char *text)
{
	return part.length == strlen(text) && !memcmp(part.at, text, part.length);
}

static bool cut_begin(struct part *part, const char *begin)
{
	size_t length = strlen(begin);

	if (part->length < length || memcmp(part->at, begin, length))
		return false;
	*part = part_of(part->at + length, part->length - length);
	return true;
}

static bool cut_end(struct part *part, const char *end)
{
	size_t length = strlen(end);

	if (part->length < length || memcmp(part->at + part->length - length, end, length))
		return false;
	part->length -= length;
	return true;
}

static bool is_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool are_digits(struct part part)
{
	for (size_t i = 0; i < part.length; i++)
		if (!is_digit(part.at[i]))
			return false;
	return true;
}

/* Checks for "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467", with that sign between the groups. */
static bool is_uuid(struct part part, char between)
{
	for (size_t i = 0; i < part.length; i++) {
		bool gap = i == 8 || i == 13 || i == 18 || i == 23;

		if (gap ? part.at[i] != between : !is_digit(part.at[i]))
			return false;
	}
	return part.length == UUID_LEN;
}

static bool read_uid(struct part part, char between, char uid[NT_POD_UID_LEN])
{
	bool hash = part.length == HASH_DIGITS && are_digits(part);

	if (!hash && !is_uuid(part, between))
		return false;
	for (size_t i = 0; i < part.length; i++)
		uid[i] = part.at[i] == between ? '-' : part.at[i];
	uid[part.length] = '\0';
	return true;
}

/* Does a slice's name, cut before "-podUID", go on from kubelet's? Its own may follow others. */
static bool is_of_kubelet(struct part slice)
{
	if (!cut_end(&slice, "-burstable"))
		cut_end(&slice, "-besteffort");
	return cut_end(&slice, "kubepods") && (!slice.length || slice.at[slice.length - 1] == '-');
}

/* Reads "kubepods-burstable-pod3f2a91c4_6b0e_4d7a_9c35_d1e8f0a2b467.slice". */
static bool read_pod_slice(struct part name, char uid[NT_POD_UID_LEN])
{
	static const size_t lengths[] = {UUID_LEN, HASH_DIGITS};

	if (!cut_end(&name, ".slice"))
		return false;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct part before = name;

		if (name.length < lengths[i])
			continue;
		before.length -= lengths[i];
		if (cut_end(&before, "-pod") && is_of_kubelet(before))
			return read_uid(part_of(name.at + name.length - lengths[i], lengths[i]),
					'_', uid);
	}
	return false;
}

/*
 * Reads "pod3f2a91c4-…" below one of kubelet's directories. The first name of a path may be below
 * one: that may be the part which the reader's root hides.
 */
static bool read_pod_directory(struct part parent, struct part name, char uid[NT_POD_UID_LEN])
{
	if (!cut_begin(&name, "pod"))
		return false;
	if (parent.length && !equals(parent, "kubepods") && !equals(parent, "burstable") &&
	    !equals(parent, "besteffort"))
		return false;
	return read_uid(name, '-', uid);
}

static bool read_container(struct part name, char id[NT_CONTAINER_ID_LEN])
{
	static const char *const prefixes[] = {"cri-containerd-", "crio-",   "docker-",
					       "libpod-payload-", "libpod-", "nerdctl-"};

	cut_end(&name, ".scope");
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (cut_begin(&name, prefixes[i]))
			break;
	if (name.length != ID_DIGITS || !are_digits(name))
		return false;
	memcpy(id, name.at, ID_DIGITS);
	id[ID_DIGITS] = '\0';
	return true;
}

/* Splits "kubepods-burstable-podUID.slice:cri-containerd:ID"; other names have one part only. */
static struct part last_of_joined(struct part *name)
{
	struct part all = *name;
	const char *colon = memchr(all.at, ':', all.length);
	size_t last = all.length;

	if (!colon)
		return all;
	name->length = colon - all.at;
	while (all.at[last - 1] != ':')
		last--;
	return part_of(all.at + last, all.length - last);
}

/*
 * The outermost pod counts, and in it the outermost container: what is further in, a container
 * made itself. Without a pod the outermost container counts.
 */
void nt_container_of_path(const char *path, struct nt_container *container)
{
	struct part rest = part_of(path, strlen(path)), parent = {0}, name;

	memset(container, 0, sizeof(*container));
	cut_end(&rest, " (deleted)"); /* proc_cgroup_show() */
	for (; rest.length; parent = name) {
		struct part last;
		const char *slash;

		cut_begin(&rest, "/");
		slash = memchr(rest.at, '/', rest.length);
		name = part_of(rest.at, slash ? (size_t)(slash - rest.at) : rest.length);
		rest = part_of(rest.at + name.length, rest.length - name.length);
		last = last_of_joined(&name);
		if (!container->pod_uid[0] &&
		    (read_pod_slice(name, container->pod_uid) ||
		     read_pod_directory(parent, name, container->pod_uid)))
			/* that was the node's, which is a container itself */
			memset(container->id, 0, sizeof(container->id));
		if (!container->id[0])
			read_container(last, container->id);
	}
}

/*
 * Goes up by each "/..", which it cuts: the kernel shows a path from the root of the reader's
 * cgroup namespace (kernfs_path_from_node()), and climbs from there where the process is in none of
 * its cgroups. Returns the length of what is left of the root's path.
 */
static size_t climb(const char *root, struct part *path)
{
	struct part rest = *path;
	size_t length = strlen(root);

	while (cut_begin(&rest, "/..") && (!rest.length || rest.at[0] == '/')) {
		*path = rest;
		while (length && root[--length] != '/')
			;
	}
	return length;
}

/* Writes the path that a line shows, below the path of the root from which the reader sees it. */
static void resolve(const char *root, struct part line, char path[PATH_MAX])
{
	size_t above = climb(root, &line);

	if (equals(line, "/"))
		line.length = 0;
	if (!above && !line.length)
		line = part_of("/", 1);
	snprintf(path, PATH_MAX, "%.*s%.*s", (int)above, root, (int)line.length, line.at);
}

/* Cuts "7:memory:/path" to its path; false: it has none. The kernel lets no name have a newline. */
static bool take_path(struct part *line, bool *is_v2)
{
	const char *colon;

	*is_v2 = cut_begin(line, "0::");
	for (int i = 0; !*is_v2 && i < 2; i++) {
		colon = memchr(line->at, ':', line->length);
		if (!colon)
			return false;
		*line = part_of(colon + 1, line->length - (colon + 1 - line->at));
	}
	return line->length && line->at[0] == '/';
}

static bool is_any(const struct nt_container *container)
{
	return container->id[0] || container->pod_uid[0];
}

void nt_cgroups_parse(const char *text, const char *root, char *path, size_t size,
		      struct nt_container *container)
{
	struct nt_container named;
	char whole[PATH_MAX];

	path[0] = '\0';
	memset(container, 0, sizeof(*container));
	while (*text) {
		struct part line = part_of(text, strcspn(text, "\n"));
		bool is_v2;

		text += line.length;
		text += *text == '\n';
		if (!take_path(&line, &is_v2))
			continue;
		resolve(is_v2 && root ? root : "", line, whole);
		if (is_v2)
			snprintf(path, size, "%s", whole);
		nt_container_of_path(whole, &named);
		if (is_any(&named) && (is_v2 || !is_any(container)))
			*container = named;
	}
}
