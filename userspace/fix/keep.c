// SPDX-License-Identifier: GPL-2.0
#include "fix/keep.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach/kernel.h"
#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "bpf/keep.h"
#include "capture/find_cgroup.h"
#include "capture/kept.h"
#include "capture/processes.h"
#include "keep.skel.h"
#include "privileges/privileges.h"
#include "privileges/refusals.h"

/* Where pins lie: nagletrace-REMEDY-CGROUP, with the ID of the cgroup, which is its inode. */
#define PINS "/sys/fs/bpf"

/* The most sockops programs of a cgroup that we look at: as many as the kernel attaches. */
#define MOST_PROGRAMS 64

/* How a pin is named, and since which Linux the kernel knows the option here. */
static const struct {
	const char *pin, *since;
} remedies[] = {
	[NT_KEPT_NODELAY] = {"nodelay", "6.1"},
	[NT_KEPT_DELACK] = {"quickack-limit", "5.10"},
};

struct keep {
	const struct nt_settings *settings;
	struct nt_targets targets;
	char shown[NT_ESCAPED_LEN(NT_CGROUP_LEN)]; /* the cgroup's path as messages have it */
	enum nt_kept_remedy remedy;
	struct keep_bpf *skel;
	struct bpf_link *link;
};

bool nt_fix_keeps(const struct nt_settings *o)
{
	return o->keep || o->pin || o->undo || (!o->nodelay && !o->quickack);
}

/* ---- pins ---- */

static void pin_path(const struct keep *keep, enum nt_kept_remedy remedy, char path[NT_CGROUP_LEN])
{
	struct stat st = {};

	fstat(keep->targets.cgroup_fd, &st);
	snprintf(path, NT_CGROUP_LEN, PINS "/nagletrace-%s-%ju", remedies[remedy].pin,
		 (uintmax_t)st.st_ino);
}

/* Reads about a pin of ours; false: there is none, or it is something else's. */
static bool read_pin(const char *path, struct bpf_link_info *info)
{
	__u32 size = sizeof(*info);
	int link = bpf_obj_get(path);
	bool is_ours;

	memset(info, 0, sizeof(*info));
	is_ours = link >= 0 && !bpf_obj_get_info_by_fd(link, info, &size) &&
		  info->type == BPF_LINK_TYPE_CGROUP;
	if (link >= 0)
		close(link);
	return is_ours;
}

/* Removes the pins of cgroups that are gone: the kernel has detached them. */
static void sweep(void)
{
	DIR *directory = opendir(PINS);
	const struct dirent *entry;
	struct bpf_link_info info;
	char path[sizeof(PINS) + sizeof(entry->d_name)];

	while (directory && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), PINS "/%s", entry->d_name);
		if (!strncmp(entry->d_name, "nagletrace-", strlen("nagletrace-")) &&
		    read_pin(path, &info) && !info.cgroup.cgroup_id)
			unlink(path);
	}
	if (directory)
		closedir(directory);
}

static enum nt_exit undo(const struct keep *keep)
{
	char path[NT_CGROUP_LEN];
	unsigned int undone = 0;

	for (enum nt_kept_remedy remedy = 0; remedy < NT_KEPT_REMEDIES; remedy++) {
		pin_path(keep, remedy, path);
		if (!unlink(path)) {
			undone++;
			nt_log("%s is no longer set on new connections of %s; those that are "
			       "open keep it",
			       nt_kept_option(remedy), keep->shown);
		} else if (errno != ENOENT) {
			bool denied = errno == EACCES || errno == EPERM;

			nt_log("--undo: cannot remove %s: %s%s", path, strerror(errno),
			       denied ? "; run it with sudo" : "");
			return denied ? NT_EXIT_PERMISSION : NT_EXIT_FAILED;
		}
	}
	if (undone)
		return NT_EXIT_OK;
	nt_log("--undo: nothing is pinned for the cgroup %s; without --undo, `fix` lists what is "
	       "kept",
	       keep->shown);
	return NT_EXIT_USAGE;
}

/* ---- what is kept ---- */

/* Reads the counts of a program that has our name: its map may be another version's. */
static int read_counts(__u32 id, struct nt_keep *kept)
{
	struct bpf_map_info info = {};
	__u32 size = sizeof(info), zero = 0;
	int map = bpf_map_get_fd_by_id(id), err = map < 0 ? -errno : 0;

	memset(kept, 0, sizeof(*kept));
	if (!err && bpf_obj_get_info_by_fd(map, &info, &size))
		err = -errno;
	if (!err && info.type == BPF_MAP_TYPE_ARRAY && info.value_size == sizeof(*kept) &&
	    bpf_map_lookup_elem(map, &zero, kept))
		err = -errno;
	if (map >= 0)
		close(map);
	return err;
}

/* Finds which remedy a program of ours is, and reads its counts; false: it is not ours. */
static bool read_program(__u32 id, enum nt_kept_remedy *remedy, struct nt_keep *kept, int *err)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info), maps[4];
	int prog = bpf_prog_get_fd_by_id(id);

	*err = prog < 0 ? -errno : 0;
	info.map_ids = (__u64)(unsigned long)maps;
	info.nr_map_ids = sizeof(maps) / sizeof(maps[0]);
	if (prog >= 0 && bpf_obj_get_info_by_fd(prog, &info, &size))
		info.name[0] = '\0';
	*remedy = nt_kept_remedy_of(info.name);
	if (prog >= 0 && *remedy < NT_KEPT_REMEDIES && info.nr_map_ids)
		*err = read_counts(maps[0], kept);
	if (prog >= 0)
		close(prog);
	return *remedy < NT_KEPT_REMEDIES;
}

void nt_fix_print_kept(FILE *out, const struct nt_kept *kept)
{
	char shown[NT_ESCAPED_LEN(NT_CGROUP_LEN)];

	nt_escape(kept->cgroup, NT_CGROUP_LEN, shown, sizeof(shown));
	fprintf(out, "%s%s%s, %s, set on %" PRIu64 " connection%s: %s\n", kept->option,
		kept->limit_us ? " " : "",
		kept->limit_us ? nt_duration(kept->limit_us * 1000ULL).text : "",
		kept->pinned ? "pinned" : "while a command runs", kept->connections,
		nt_plural(kept->connections), shown);
}

/* Calls for what is kept in one cgroup. Returns how many, or -errno; the cgroup may end meanwhile.
 */
static int list_one(const struct keep *keep, const char *cgroup, nt_kept_call *call, void *context)
{
	__u32 ids[MOST_PROGRAMS], n = MOST_PROGRAMS, flags;
	char path[NT_CGROUP_LEN];
	struct bpf_link_info pin;
	struct nt_keep counts;
	enum nt_kept_remedy remedy;
	int count = 0, err = 0;

	if (bpf_prog_query(keep->targets.cgroup_fd, BPF_CGROUP_SOCK_OPS, 0, &flags, ids, &n))
		return errno == ENOENT || errno == ENODEV ? 0 : -errno;
	for (__u32 i = 0; !err && i < n; i++) {
		if (!read_program(ids[i], &remedy, &counts, &err)) {
			if (err == -ENOENT) /* it has gone meanwhile */
				err = 0;
			continue;
		}
		pin_path(keep, remedy, path);
		call(context,
		     &(struct nt_kept){.option = nt_kept_option(remedy),
				       .cgroup = cgroup,
				       .pinned = read_pin(path, &pin) && pin.prog_id == ids[i],
				       .connections = counts.set,
				       .limit_us = counts.limit_us});
		count++;
	}
	return err ? err : count;
}

/* root: where the cgroup is, by whatever path; an error there is one. */
static int each_kept(const char *root, const char *cgroup, nt_kept_call *call, void *context)
{
	char *const roots[] = {(char *)root, NULL}, path[PATH_MAX];
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	int count = 0, found = tree ? 0 : -errno;
	FTSENT *entry;

	while (tree && found >= 0 && (entry = fts_read(tree))) {
		struct keep keep = {};

		if (!entry->fts_level && entry->fts_errno)
			found = -entry->fts_errno;
		if (entry->fts_info != FTS_D)
			continue;
		keep.targets.cgroup_fd = open(entry->fts_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (keep.targets.cgroup_fd < 0)
			continue;
		snprintf(path, sizeof(path), "%s%s", cgroup, entry->fts_path + strlen(root));
		found = list_one(&keep, path[0] ? path : "/", call, context);
		count += found > 0 ? found : 0;
		close(keep.targets.cgroup_fd);
	}
	if (tree)
		fts_close(tree);
	return found < 0 ? found : count;
}

int nt_fix_each_kept(nt_kept_call *call, void *context)
{
	const char *mount = nt_cgroup_mount();

	return mount ? each_kept(mount, "", call, context) : 0;
}

static void print_to(void *out, const struct nt_kept *kept)
{
	nt_fix_print_kept(out, kept);
}

static enum nt_exit list(const struct keep *keep)
{
	char root[32];
	int count;

	/* the path may be longer than what we know of it */
	snprintf(root, sizeof(root), "/proc/self/fd/%d", keep->targets.cgroup_fd);
	count = each_kept(root, keep->targets.cgroup, print_to, stdout);
	if (count < 0) {
		nt_log("cannot list what is kept: %s%s", strerror(-count),
		       count == -EPERM ? "; it takes CAP_NET_ADMIN and CAP_SYS_ADMIN" : "");
		return count == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_FAILED;
	}
	if (!count)
		printf("nothing is kept in the cgroup %s or below it\n", keep->shown);
	return nt_streams_written(nt_flush(stdout));
}

/* ---- to attach ---- */

static bool load(struct keep *keep, struct nt_error *error)
{
	int err;

	keep->skel = keep_bpf__open();
	if (!keep->skel)
		return nt_started(-errno, error);
	bpf_program__set_autoload(keep->skel->progs.nt_keep_nodelay,
				  keep->remedy == NT_KEPT_NODELAY);
	bpf_program__set_autoload(keep->skel->progs.nt_keep_delack, keep->remedy == NT_KEPT_DELACK);
	err = keep_bpf__load(keep->skel);
	if (!err && !keep->skel->bss) /* this kernel maps no map's memory, as before 5.5 */
		err = -EOPNOTSUPP;
	if (err == -EPERM)
		return nt_error_set(error, NT_EXIT_PERMISSION,
				    "fix: cannot load the program; it takes CAP_BPF and "
				    "CAP_NET_ADMIN: run it with sudo");
	if (err)
		return nt_error_set(error, NT_EXIT_KERNEL,
				    "fix: this kernel does not load the program: %s",
				    strerror(-err));
	keep->skel->bss->kept.limit_us = keep->settings->quickack_limit_ns / 1000;
	return true;
}

static bool attach(struct keep *keep, int cgroup, struct nt_error *error)
{
	struct bpf_program *prog = keep->remedy == NT_KEPT_NODELAY
					   ? keep->skel->progs.nt_keep_nodelay
					   : keep->skel->progs.nt_keep_delack;

	keep->link = bpf_program__attach_cgroup(prog, cgroup);
	if (keep->link)
		return true;
	return nt_error_set(error, errno == EPERM ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL,
			    "fix: cannot attach to the cgroup: %s%s", strerror(errno),
			    errno != EPERM ? ""
			    : nt_privileges_has(CAP_EFFECTIVE, CAP_NET_ADMIN)
				    ? "; a program is attached there that allows no other"
				    : "; it takes CAP_NET_ADMIN");
}

static void detach(struct keep *keep)
{
	bpf_link__destroy(keep->link);
	keep->link = NULL;
}

/* Makes a connection over loopback, for a program that acts on this port only. Returns 0 or -errno.
 */
static int connect_once(struct nt_keep *kept)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), server = -1, err = 0;
	const struct timeval most = {.tv_sec = 1}; /* a firewall may drop what we send */

	if (listener < 0 || client < 0 || bind(listener, (void *)&address, size) ||
	    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) ||
	    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) ||
	    listen(listener, 1) || getsockname(listener, (void *)&address, &size))
		err = -errno;
	if (!err)
		kept->port = ntohs(address.sin_port);
	if (!err && connect(client, (void *)&address, size))
		err = errno == EINPROGRESS ? -ETIMEDOUT : -errno;
	if (!err && (server = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
		err = errno == EAGAIN ? -ETIMEDOUT : -errno;
	close(server); /* those that were not made are -1, which close() refuses */
	close(client);
	close(listener);
	return err;
}

/*
 * Does this kernel's bpf_setsockopt() know the option, and take this value? Nothing tells but a
 * connection. Ours is in the cgroup at the root; the program leaves all others alone.
 */
static bool try_it(struct keep *keep, struct nt_error *error)
{
	int root = open(nt_cgroup_mount(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), err;
	struct nt_keep *kept = &keep->skel->bss->kept;

	kept->port = UINT16_MAX + 1; /* nobody has it yet; 0 would be everybody */
	if (!attach(keep, root, error)) {
		close(root);
		return false;
	}
	err = connect_once(kept);
	detach(keep);
	close(root);
	if (!err && !kept->set)
		err = kept->refused ? kept->err : -ENOTCONN;
	kept->port = 0;
	kept->set = 0;
	if (!err)
		return true;
	if (err == -EINVAL || err == -ENOPROTOOPT)
		return nt_error_set(error, NT_EXIT_KERNEL,
				    "fix: this kernel sets no %s for a program on a cgroup; Linux "
				    "%s and newer do",
				    nt_kept_option(keep->remedy), remedies[keep->remedy].since);
	return nt_error_set(error, NT_EXIT_FAILED,
			    "fix: cannot try %s on a connection over loopback: %s",
			    nt_kept_option(keep->remedy), strerror(-err));
}

/* The kernel takes two jiffies at least: TCP_TIMEOUT_MIN, include/net/tcp.h. */
static bool check_limit(const struct keep *keep, struct nt_error *error)
{
	uint64_t least_ns = 2 * nt_kernel_tick_ns(), most_ns = 200 * 1000000ULL;
	uint64_t limit_ns = keep->settings->quickack_limit_ns;

	if (keep->remedy != NT_KEPT_DELACK || (limit_ns >= least_ns && limit_ns <= most_ns))
		return true;
	return nt_error_set(
		error, NT_EXIT_USAGE,
		"--quickack-limit %s: this kernel takes %s (two jiffies) to 200 ms; give "
		"one of these",
		nt_duration(limit_ns).text, nt_duration(least_ns).text);
}

static bool pin(struct keep *keep, struct nt_error *error)
{
	char path[NT_CGROUP_LEN];
	struct statfs fs;
	bool denied;
	int err;

	if (statfs(PINS, &fs) || fs.f_type != BPF_FS_MAGIC)
		return nt_error_set(error, NT_EXIT_USAGE,
				    "--pin: no BPF file system at " PINS "; `mount -t bpf bpf " PINS
				    "` makes one");
	sweep();
	pin_path(keep, keep->remedy, path);
	err = bpf_link__pin(keep->link, path);
	if (err == -EEXIST)
		return nt_error_set(error, NT_EXIT_USAGE,
				    "--pin: %s is set in this cgroup already; --undo ends that",
				    nt_kept_option(keep->remedy));
	denied = err == -EACCES || err == -EPERM;
	return !err || nt_error_set(error, denied ? NT_EXIT_PERMISSION : NT_EXIT_FAILED,
				    "--pin: cannot pin %s: %s%s", path, strerror(-err),
				    denied ? "; run it with sudo" : "");
}

static void announce(const struct keep *keep, const char *until)
{
	if (!keep->settings->quiet)
		nt_log("%s is set on each connection that is established in %s from now on, %s",
		       nt_kept_option(keep->remedy), keep->shown, until);
}

/* Gives up everything, then waits for a signal, or for the end of the cgroup. */
static bool stay(const struct keep *keep, const sigset_t *signals, struct nt_error *error)
{
	const struct nt_keep *kept = &keep->skel->bss->kept;
	const struct timespec second = {.tv_sec = 1};
	char rest[128];

	if (!nt_started(nt_privileges_drop(NULL, 0, NULL, 0, NULL, rest, sizeof(rest)), error))
		return false;
	nt_refuse_system_calls_or_report(NULL, false);
	fputs("nagletrace: ready\n", stderr);
	while (sigtimedwait(signals, NULL, &second) < 0) {
		/* without privileges we may not be allowed to look, which says nothing */
		if (!faccessat(keep->targets.cgroup_fd, "cgroup.procs", F_OK, 0) ||
		    (errno != ENOENT && errno != ENODEV))
			continue;
		nt_log("the cgroup is gone");
		break;
	}
	if (!keep->settings->quiet)
		nt_log("set %s on %" PRIu64 " connection%s, which keep it while they are open",
		       nt_kept_option(keep->remedy), (uint64_t)kept->set, nt_plural(kept->set));
	if (kept->refused)
		nt_log("the kernel refused it on %" PRIu64 " connection%s: %s",
		       (uint64_t)kept->refused, nt_plural(kept->refused), strerror(-kept->err));
	return true;
}

static bool start(struct keep *keep, struct nt_error *error)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	if (!check_limit(keep, error) || !load(keep, error) || !try_it(keep, error) ||
	    !attach(keep, keep->targets.cgroup_fd, error))
		return false;
	if (keep->settings->keep) {
		announce(keep, "while this command runs");
		return stay(keep, &signals, error);
	}
	if (!pin(keep, error))
		return false;
	announce(keep, "until --undo");
	return true;
}

enum nt_exit nt_fix_keep(const struct nt_settings *settings)
{
	struct keep keep = {.settings = settings,
			    .remedy = settings->nodelay ? NT_KEPT_NODELAY : NT_KEPT_DELACK};
	enum nt_exit code = NT_EXIT_OK;
	struct nt_error error;

	nt_quiet_libbpf(settings->verbose);
	if (!nt_targets_open(&keep.targets, settings, &error))
		return nt_error_log(&error);
	nt_escape(keep.targets.cgroup[0] ? keep.targets.cgroup : "/", NT_CGROUP_LEN, keep.shown,
		  sizeof(keep.shown));
	if (settings->undo)
		code = undo(&keep);
	else if (!settings->keep && !settings->pin)
		code = list(&keep);
	else if (!start(&keep, &error))
		code = nt_error_log(&error);
	detach(&keep);
	keep_bpf__destroy(keep.skel);
	nt_targets_close(&keep.targets);
	return code;
}
