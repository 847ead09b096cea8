// SPDX-License-Identifier: GPL-2.0
#include "processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "nagletrace.skel.h"

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

/* The line "0::/path" of cgroup v2. */
static void read_cgroup(pid_t tgid, char cgroup[NT_CGROUP_LEN])
{
	char text[4096], *line;

	cgroup[0] = '\0';
	if (read_proc(tgid, "cgroup", text, sizeof(text)))
		return;
	line = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	if (!line)
		return;
	line = strstr(line, "0::") + 3;
	snprintf(cgroup, NT_CGROUP_LEN, "%.*s", (int)strcspn(line, "\n"), line);
}

int nt_process_read(pid_t tgid, struct nt_process *process)
{
	char comm[NT_COMM_LEN + 1] = "";
	int err;

	memset(process, 0, sizeof(*process));
	process->tgid = tgid;
	err = read_proc(tgid, "comm", comm, sizeof(comm));
	if (err)
		return err;
	/* the name ends with the file's newline, and may hold others */
	if (comm[0])
		comm[strlen(comm) - 1] = '\0';
	memcpy(process->comm, comm, NT_COMM_LEN - 1);
	read_cgroup(tgid, process->cgroup);
	return 0;
}

/* As it was mounted last: hidepid, proc(5). */
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

static bool is_readable_and_of_another(const char *name)
{
	struct nt_process process;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%s", name);
	return !stat(path, &st) && st.st_uid != geteuid() && !nt_process_read(atoi(name), &process);
}

bool nt_processes_hidden(void)
{
	const struct dirent *entry;
	bool hidden = true;
	DIR *proc;

	if (!proc_is_restricted())
		return false;
	proc = opendir("/proc");
	while (proc && hidden && (entry = readdir(proc)))
		if (isdigit(entry->d_name[0]))
			hidden = !is_readable_and_of_another(entry->d_name);
	if (proc)
		closedir(proc);
	return hidden;
}

/* A thread's number passes for a process in /proc; its Tgid tells. Returns 0 if there is no such
 * process. */
static pid_t thread_group_of(pid_t pid)
{
	char text[4096], *line;

	if (read_proc(pid, "status", text, sizeof(text)))
		return 0;
	line = strstr(text, "\nTgid:");
	return line ? atoi(line + strlen("\nTgid:")) : 0;
}

static enum nt_exit open_pids(struct nt_targets *targets, char *err, size_t err_size)
{
	const struct nt_options *opts = targets->opts;

	for (unsigned int i = 0; i < opts->n_pids; i++) {
		pid_t pid = opts->pids[i], group = thread_group_of(pid);

		if (!group) {
			snprintf(err, err_size,
				 "--pid %d: no such process; `pgrep -a NAME` lists those that run",
				 pid);
			return NT_EXIT_USAGE;
		}
		if (group != pid) {
			snprintf(err, err_size, "--pid %d: a thread of process %d; give --pid %d",
				 pid, group, group);
			return NT_EXIT_USAGE;
		}
		targets->pidfds[i] = syscall(SYS_pidfd_open, pid, 0);
		if (targets->pidfds[i] < 0) {
			snprintf(err, err_size, "--pid %d: cannot watch the process: %s", pid,
				 strerror(errno));
			return errno == ESRCH ? NT_EXIT_USAGE : NT_EXIT_FAILED;
		}
	}
	return NT_EXIT_OK;
}

static enum nt_exit open_cgroup(struct nt_targets *targets, char *err, size_t err_size)
{
	static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
	const char *path = targets->opts->cgroup;
	char full[512];
	struct statfs fs;

	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		size_t prefix = strlen(mounts[i]);

		if (!strncmp(path, mounts[i], prefix) && (path[prefix] == '/' || !path[prefix]))
			path += prefix;
		snprintf(full, sizeof(full), "%s%s%s", mounts[i], path[0] == '/' ? "" : "/", path);
		targets->cgroup_fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (targets->cgroup_fd >= 0 && !fstatfs(targets->cgroup_fd, &fs) &&
		    fs.f_type == CGROUP2_SUPER_MAGIC)
			break;
		if (targets->cgroup_fd >= 0)
			close(targets->cgroup_fd);
		targets->cgroup_fd = -1;
	}
	if (targets->cgroup_fd < 0) {
		snprintf(err, err_size,
			 "--cgroup %.200s: no such cgroup v2; give a path under /sys/fs/cgroup, as "
			 "/proc/PID/cgroup shows it",
			 targets->opts->cgroup);
		return NT_EXIT_USAGE;
	}
	snprintf(targets->cgroup, sizeof(targets->cgroup), "%s", path);
	for (size_t n = strlen(targets->cgroup); n && targets->cgroup[n - 1] == '/';)
		targets->cgroup[--n] = '\0';
	return NT_EXIT_OK;
}

enum nt_exit nt_targets_open(struct nt_targets *targets, const struct nt_options *opts, char *err,
			     size_t err_size)
{
	enum nt_exit code;

	memset(targets, 0, sizeof(*targets));
	targets->opts = opts;
	targets->cgroup_fd = -1;
	targets->pids_map = -1;
	for (size_t i = 0; i < NT_MAX_PIDS; i++)
		targets->pidfds[i] = -1;
	code = open_pids(targets, err, err_size);
	if (!code && opts->cgroup)
		code = open_cgroup(targets, err, err_size);
	if (code)
		nt_targets_close(targets);
	return code;
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

void nt_targets_ended(struct nt_targets *targets, unsigned int i)
{
	close_once(&targets->pidfds[i]);
}

static int add_pid(const struct nt_targets *targets, pid_t pid)
{
	__u32 key = pid;
	__u8 one = 1;

	return bpf_map_update_elem(targets->pids_map, &key, &one, BPF_ANY) ? -errno : 0;
}

static bool has_pid(const struct nt_targets *targets, pid_t pid)
{
	__u32 key = pid;
	__u8 one;

	return !bpf_map_lookup_elem(targets->pids_map, &key, &one);
}

/* The parent, fourth in /proc/PID/stat after a name that may hold anything, brackets too. */
static pid_t parent_of(pid_t pid)
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

/* Adds children of processes that are in the map; returns how many were new, or -errno. */
static int add_children(const struct nt_targets *targets)
{
	struct dirent *entry;
	int added = 0, err;
	DIR *proc = opendir("/proc");

	if (!proc)
		return -errno;
	while ((entry = readdir(proc))) {
		pid_t pid = isdigit(entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (!pid || has_pid(targets, pid) || !has_pid(targets, parent_of(pid)))
			continue;
		err = add_pid(targets, pid);
		if (err) {
			added = err;
			break;
		}
		added++;
	}
	closedir(proc);
	return added;
}

int nt_targets_start(struct nt_targets *targets, const struct nt_tracer *tracer)
{
	const struct nt_options *opts = targets->opts;
	__u32 zero = 0;
	int err;

	targets->pids_map = bpf_map__fd(tracer->skel->maps.pids);
	for (unsigned int i = 0; i < opts->n_pids; i++) {
		err = add_pid(targets, opts->pids[i]);
		if (err)
			return err;
	}
	if (opts->n_pids)
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
	return targets->opts->n_pids || targets->opts->name[0] || targets->opts->cgroup;
}

bool nt_targets_match(const struct nt_targets *targets, pid_t tgid)
{
	const struct nt_options *opts = targets->opts;
	size_t prefix = strlen(targets->cgroup);
	struct nt_process process;

	if (!tgid)
		return false;
	if (opts->n_pids) {
		for (unsigned int i = 0; i < opts->n_pids; i++)
			if (opts->pids[i] == tgid && targets->pidfds[i] >= 0)
				return true;
		return has_pid(targets, tgid);
	}
	if (nt_process_read(tgid, &process))
		return false;
	if (opts->name[0])
		return !strcmp(process.comm, opts->name);
	return !strncmp(process.cgroup, targets->cgroup, prefix) &&
	       (process.cgroup[prefix] == '/' || !process.cgroup[prefix]);
}
