/* SPDX-License-Identifier: GPL-2.0 */
/* The settings of a run, as the command line or a caller gives them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum nt_hooks {
	NT_HOOKS_AUTO = 0,
	NT_HOOKS_FUNCTION,
	NT_HOOKS_KPROBE,
	NT_HOOKS_TRACEPOINT,
};

/* What settings.cgroup is. */
enum nt_cgroup_by {
	NT_CGROUP_PATH = 0,
	NT_CGROUP_CONTAINER, /* its ID, 12 digits of it, or its name */
	NT_CGROUP_POD,       /* its UID */
	NT_CGROUP_UNIT,      /* of systemd */
};

enum nt_output {
	NT_OUTPUT_TEXT = 0,
	NT_OUTPUT_JSON,
};

#define NT_MAX_PIDS       64
#define NT_MAX_PORTS      32
#define NT_NAME_LEN       16  /* TASK_COMM_LEN */
#define NT_HOST_MAX       253 /* bytes of a DNS name, as nodes of Kubernetes have */

#define NT_DEFAULT_SOCKET "/run/nagletrace/nagletrace.sock"

struct nt_port_list {
	uint16_t port[NT_MAX_PORTS];
	unsigned int count;
};

struct nt_settings {
	pid_t pids[NT_MAX_PIDS];
	unsigned int n_pids;
	char *const *workload;  /* the command to trace, as execvp(3) takes it; NULL: none */
	const char *user;       /* who runs it; NULL: who called sudo, or else us */
	char name[NT_NAME_LEN]; /* "": none */
	enum nt_cgroup_by cgroup_by;
	const char *cgroup; /* NULL: none */
	uint64_t netns;     /* inode of a network namespace; 0: all */
	struct nt_port_list ports, local_ports, remote_ports;
	bool only_v4, only_v6;
	uint64_t min_ns;         /* default 1 ms */
	uint64_t interval_ns;    /* 0: no reports at intervals */
	uint64_t duration_ns;    /* 0: until interrupted */
	uint64_t count;          /* 0: without limit */
	uint64_t fail_on_stalls; /* the exit code is 5 from this number on; 0: never */
	bool all_holds, stacks, timeline, progress, wide, utc, quiet;
	int verbose;
	enum nt_output output;
	const char *output_file; /* NULL: stdout, or stderr beside a workload */
	enum nt_hooks hooks;
	const char *btf;           /* NULL: the kernel's own */
	uint64_t max_overhead_ppm; /* of the time of all CPUs; 0: no limit */

	const char *socket; /* the daemon's */
	const char *group;  /* whose members may use it; NULL: the group that the daemon runs in */
	gid_t group_id;     /* its number, if group is set */
	uint64_t window_ns; /* the daemon's report covers at least half of this */
	uint64_t max_series;
	uint64_t max_connections;
	uint64_t max_late_acks; /* the daemon streams so many a second; 0: none, or no limit */
	bool standby;           /* the daemon attaches while something stalls only */
	uint64_t quiet_ns;      /* in standby: it detaches after this time without a stall */
	bool by_cgroup;         /* the cgroup is a label of the series too */
	bool follow, health;    /* report: ask for the stream, or for the health, instead */
	bool borrows_sockets;   /* from the processes that it traces, by pidfd_getfd(2) */
	bool counts_kept;       /* the daemon reports the remedies that are kept on this host */
	bool has_fleet_key;     /* fleet_keys are set: other hosts hash ACKs with it too */
	uint8_t fleet_keys[2][16];
	int64_t next_fleet_key_ns; /* from when on (since 1970) the second is used; 0: there is
				      none */
	const char *host;          /* the host's name in records; NULL: as uname(2) gives it */
	bool late_acks;            /* each late ACK is reported, for the join with other hosts */
	bool streams_stacks;       /* each stall is shown with its stack, not only in reports */
	bool traces_itself;        /* top: an option of the trace asks for it */

	unsigned int help_of; /* help: on which command (enum nt_command); the trace: on all */

	bool nodelay, quickack; /* fix: the option to set, one of the two */
	uint64_t for_ns; /* fix: we keep it set for this time, after we have watched for as long */
	bool yes;        /* fix: we do not ask first */
	bool all;        /* fix: we also change connections that did not stall */
	bool keep, pin, undo;       /* fix: on new connections of a cgroup: while we run, until
				     * undone, or no longer */
	uint64_t quickack_limit_ns; /* fix: ACKs of these are delayed no longer; 0: as ever */
};

/* Do the options choose processes? Do they choose connections, besides by namespace? */
static inline bool nt_chooses_processes(const struct nt_settings *settings)
{
	return settings->n_pids || settings->name[0] || settings->cgroup;
}

static inline bool nt_chooses_ports(const struct nt_settings *settings)
{
	return settings->ports.count || settings->local_ports.count || settings->remote_ports.count;
}

static inline bool nt_chooses_connections(const struct nt_settings *settings)
{
	return nt_chooses_ports(settings) || settings->only_v4 || settings->only_v6;
}

/*
 * With COUNT that many reports are written. Of a single one the closing report says the same;
 * behind several in text there is none, while a reader of JSON takes the totals from it.
 */
static inline bool nt_reports_interval(const struct nt_settings *settings)
{
	return settings->count != 1;
}

static inline bool nt_reports_whole(const struct nt_settings *settings, uint64_t reports)
{
	return settings->output != NT_OUTPUT_TEXT || settings->count < 2 ||
	       reports < settings->count;
}
