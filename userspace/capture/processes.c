// SPDX-License-Identifier: GPL-2.0
#include "capture/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach/tracer.h"
#include "base/log.h"
#include "nagletrace.skel.h"
#include "base/each_process.h"
#include "base/text.h"

#define SHOWN_BYTES 64 /* of an option, in a message about it */

static int read_proc(pid_t pid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		err = -errno;
	text[n < 0 ? 0 : n] = '\0';
	close(fd);
	return err;
}

/* The path at which our cgroup namespace begins; NULL: it is not known. */
static const char *cgroup_root;

void nt_process_take_root(const struct nt_cgroup_root *root)
{
	static char path[NT_CGROUP_LEVELS * NT_CGROUP_NAME];
	size_t length = 0;

	if (cgroup_root || !root->known)
		return;
	for (unsigned int i = root->levels; i--;)
		length += snprintf(path + length, sizeof(path) - length, "/%s", root->names[i]);
	cgroup_root = path;
}

/* Reads the cgroup, and the container that it is of. Hosts with cgroup v1 have a line for each of
 * its controllers. */
static void read_cgroup(pid_t tgid, struct nt_process *process)
{
	char text[16384];

	if (read_proc(tgid, "cgroup", text, sizeof(text)))
		text[0] = '\0';
	nt_cgroups_parse(text, cgroup_root, process->cgroup, NT_CGROUP_LEN, &process->container);
}

static bool reads_none;

void nt_process_read_none(void)
{
	reads_none = true;
}

int nt_process_read(pid_t tgid, struct nt_process *process)
{
	char comm[NT_COMM_LEN + 1] = "";
	int err;

	memset(process, 0, sizeof(*process));
	process->tgid = tgid;
	err = reads_none ? -ESRCH : read_proc(tgid, "comm", comm, sizeof(comm));
	if (err)
		return err;
	/* the name ends with the file's newline, and may hold others */
	if (comm[0])
		comm[strlen(comm) - 1] = '\0';
	memcpy(process->comm, comm, NT_COMM_LEN - 1);
	read_cgroup(tgid, process);
	return 0;
}

/* Checks for hidepid, proc(5), in the last mount of /proc. */
static bool proc_is_restricted(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	const struct mntent *mount;
	bool restricted = false;

	while (mounts && (mount = getmntent(mounts)))
		if (!strcmp(mount->mnt_dir, "/proc"))
			restricted = hasmntopt(mount, "hidepid");
	if (mounts)
		endmntent(mounts);
	return restricted;
}

static int is_readable_and_of_another(void *context, pid_t pid)
{
	struct nt_process process;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return !stat(path, &st) && st.st_uid != geteuid() && !nt_process_read(pid, &process);
}

bool nt_processes_hidden(void)
{
	return proc_is_restricted() && nt_each_process(is_readable_and_of_another, NULL) <= 0;
}

/* Returns the process of a thread, whose number /proc accepts too; 0: there is no such process. */
static pid_t thread_group_of(pid_t pid)
{
	char text[4096], *line;

	if (read_proc(pid, "status", text, sizeof(text)))
		return 0;
	line = strstr(text, "\nTgid:");
	return line ? atoi(line + strlen("\nTgid:")) : 0;
}

static bool open_pids(struct nt_targets *targets, struct nt_error *error)
{
	const struct nt_settings *settings = targets->settings;

	for (unsigned int i = 0; i < settings->n_pids; i++) {
		pid_t pid = settings->pids[i], group = thread_group_of(pid);

		if (!group && settings->workload)
			return nt_error_set(error, NT_EXIT_FAILED,
					    "the command was ended before it began");
		if (!group)
			return nt_error_set(
				error, NT_EXIT_USAGE,
				"--pid %d: no such process; `pgrep -a NAME` lists those that run",
				pid);
		if (group != pid)
			return nt_error_set(error, NT_EXIT_USAGE,
					    "--pid %d: a thread of process %d; give --pid %d", pid,
					    group, group);
		targets->pidfds[i] = syscall(SYS_pidfd_open, pid, 0);
		if (targets->pidfds[i] < 0)
			return nt_error_set(error, errno == ESRCH ? NT_EXIT_USAGE : NT_EXIT_FAILED,
					    "--pid %d: cannot watch the process: %s", pid,
					    strerror(errno));
	}
	return true;
}

/* Does the path begin with this directory, or is it that? */
static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return !strncmp(path, directory, length) && (path[length] == '/' || !path[length]);
}

/*
 * Writes the path of settings->cgroup as /proc shows it: without the mount, which it may begin
 * with, and without what a shell leaves in a path, such as `//` and `..`. What is not there stays
 * as it is.
 */
static void take_path(const struct nt_settings *settings, const char *mount, char path[PATH_MAX])
{
	const char *given = settings->cgroup;
	char full[2 * PATH_MAX], found[PATH_MAX];

	if (is_below(given, mount))
		given += strlen(mount);
	snprintf(full, sizeof(full), "%s/%s", mount, given);
	if (realpath(full, found) && is_below(found, mount))
		given = found + strlen(mount);
	snprintf(path, PATH_MAX, "%s", given);
}

static bool open_cgroup(struct nt_targets *targets, struct nt_error *error)
{
	const struct nt_settings *settings = targets->settings;
	const char *mount = nt_cgroup_mount();
	char path[PATH_MAX], full[PATH_MAX + 64], shown[NT_ESCAPED_LEN(NT_CGROUP_LEN)];

	if (settings->cgroup_by == NT_CGROUP_PATH)
		take_path(settings, mount ? mount : "", path);
	else if (!nt_find_cgroup(settings, path, error))
		return false;
	nt_escape(path, NT_CGROUP_LEN, shown, sizeof(shown));
	if (settings->cgroup_by != NT_CGROUP_PATH && !settings->quiet)
		nt_log("%s is the cgroup %s", settings->cgroup, shown);
	/* what /proc shows of a process is cut alike: nt_process_read() */
	snprintf(targets->cgroup, sizeof(targets->cgroup), "%.*s", NT_CGROUP_LEN - 1, path);
	if (mount) {
		snprintf(full, sizeof(full), "%s/%s", mount, path);
		targets->cgroup_fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (targets->cgroup_fd >= 0)
		return true;
	nt_escape(settings->cgroup, SHOWN_BYTES, shown, sizeof(shown));
	if (mount && errno != ENOENT && errno != ENOTDIR)
		return nt_error_set(error, errno == EACCES ? NT_EXIT_PERMISSION : NT_EXIT_FAILED,
				    "%s %s: cannot open the cgroup: %s%s",
				    nt_cgroup_option(settings), shown, strerror(errno),
				    errno == EACCES ? "; run it with sudo" : "");
	if (settings->cgroup_by != NT_CGROUP_PATH)
		return nt_error_set(error, NT_EXIT_USAGE, "%s %s: it has ended",
				    nt_cgroup_option(settings), shown);
	return nt_error_set(error, NT_EXIT_USAGE,
			    "--cgroup %s: no such cgroup v2; give a path under /sys/fs/cgroup, as "
			    "/proc/PID/cgroup shows it",
			    shown);
}

bool nt_targets_open(struct nt_targets *targets, const struct nt_settings *settings,
		     struct nt_error *error)
{
	memset(targets, 0, sizeof(*targets));
	targets->settings = settings;
	targets->cgroup_fd = -1;
	targets->pids_map = -1;
	for (size_t i = 0; i < NT_MAX_PIDS; i++)
		targets->pidfds[i] = -1;
	if (open_pids(targets, error) && (!settings->cgroup || open_cgroup(targets, error)))
		return true;
	nt_targets_close(targets);
	return false;
}

static void close_once(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void nt_targets_close(struct nt_targets *targets)
{
	for (size_t i = 0; i < NT_MAX_PIDS; i++)
		close_once(&targets->pidfds[i]);
	close_once(&targets->cgroup_fd);
}

int nt_targets_find_ended(const struct nt_targets *targets)
{
	for (unsigned int i = 0; i < targets->settings->n_pids; i++) {
		struct pollfd process = {.fd = targets->pidfds[i], .events = POLLIN};

		if (process.fd >= 0 && poll(&process, 1, 0) > 0)
			return i;
	}
	return -1;
}

bool nt_targets_mark_ended(struct nt_targets *targets, unsigned int i)
{
	close_once(&targets->pidfds[i]);
	for (i = 0; i < targets->settings->n_pids; i++)
		if (targets->pidfds[i] >= 0)
			return false;
	return true;
}

const char *nt_targets_ended(const struct nt_settings *settings)
{
	return settings->n_pids == 1 ? "the process ended" : "all processes ended";
}

static int add_pid(const struct nt_targets *targets, pid_t pid)
{
	__u32 key = pid;
	__u8 one = 1;

	targets->pid_marks[key % NT_PID_MARKS] = one;
	return bpf_map_update_elem(targets->pids_map, &key, &one, BPF_ANY) ? -errno : 0;
}

static bool has_pid(const struct nt_targets *targets, pid_t pid)
{
	__u32 key = pid;
	__u8 one;

	return targets->pid_marks && targets->pid_marks[key % NT_PID_MARKS] &&
	       !bpf_map_lookup_elem(targets->pids_map, &key, &one);
}

/*
 * Reads the parent, the fourth field of /proc/PID/stat, behind a name that may contain anything,
 * brackets too.
 */
pid_t nt_process_parent(pid_t pid)
{
	char text[512], *bracket;
	char state;
	int ppid;

	if (read_proc(pid, "stat", text, sizeof(text)))
		return 0;
	bracket = strrchr(text, ')');
	if (!bracket || sscanf(bracket + 1, " %c %d", &state, &ppid) != 2)
		return 0;
	return ppid;
}

struct adding {
	const struct nt_targets *targets;
	int added;
};

static int add_child(void *context, pid_t pid)
{
	struct adding *adding = context;
	int err;

	if (has_pid(adding->targets, pid) || !has_pid(adding->targets, nt_process_parent(pid)))
		return 0;
	err = add_pid(adding->targets, pid);
	adding->added += !err;
	return err;
}

/* Adds children of processes that are in the map; returns how many were new, or -errno. */
static int add_children(const struct nt_targets *targets)
{
	struct adding adding = {.targets = targets};
	int err = nt_each_process(add_child, &adding);

	return err ? err : adding.added;
}

int nt_targets_start(struct nt_targets *targets, const struct nt_tracer *tracer)
{
	const struct nt_settings *settings = targets->settings;
	__u32 zero = 0;
	int err;

	targets->pids_map = bpf_map__fd(tracer->skel->maps.pids);
	targets->pid_marks = tracer->skel->bss->pid_marks;
	for (unsigned int i = 0; i < settings->n_pids; i++) {
		err = add_pid(targets, settings->pids[i]);
		if (err)
			return err;
	}
	if (settings->n_pids)
		while ((err = add_children(targets)) > 0)
			;
	else
		err = 0;
	if (!err && targets->cgroup_fd >= 0 &&
	    bpf_map_update_elem(bpf_map__fd(tracer->skel->maps.cgroups), &zero, &targets->cgroup_fd,
				BPF_ANY))
		err = -errno;
	return err;
}

bool nt_targets_any(const struct nt_targets *targets)
{
	return nt_chooses_processes(targets->settings);
}

bool nt_targets_match_known(const struct nt_targets *targets, const struct nt_process *process)
{
	const struct nt_settings *settings = targets->settings;

	if (settings->n_pids) {
		for (unsigned int i = 0; i < settings->n_pids; i++)
			if (settings->pids[i] == process->tgid && targets->pidfds[i] >= 0)
				return true;
		return has_pid(targets, process->tgid);
	}
	if (settings->name[0])
		return !strcmp(process->comm, settings->name);
	return is_below(process->cgroup, targets->cgroup);
}

bool nt_targets_match(const struct nt_targets *targets, pid_t tgid)
{
	struct nt_process process = {.tgid = tgid};

	if (!tgid || (!targets->settings->n_pids && nt_process_read(tgid, &process)))
		return false;
	return nt_targets_match_known(targets, &process);
}
