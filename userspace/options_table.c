// SPDX-License-Identifier: GPL-2.0
#include "options_table.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "numbers.h"

#define PID_MAX_LIMIT 4194304 /* include/linux/threads.h */

int nt_fail(struct nt_parse *p, const char *format, ...)
{
	char text[4 * NT_OPTION_ERROR_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(p->err, p->err_size, "%s", text);
	return -EINVAL;
}

void nt_show(const char *text, size_t length, char shown[NT_SHOWN_LEN])
{
	if (!length) {
		strcpy(shown, "\"\"");
		return;
	}
	nt_escape(text, length < NT_SHOWN_MAX ? length : NT_SHOWN_MAX, shown,
		  NT_ESCAPED_LEN(NT_SHOWN_MAX));
	if (length > NT_SHOWN_MAX)
		strcat(shown, "…");
}

int nt_refuse(struct nt_parse *p, const char *value, const char *what)
{
	char shown[NT_SHOWN_LEN];

	nt_show(value, strlen(value), shown);
	return nt_fail(p, "%s %s: %s", p->spelled, shown, what);
}

static int set_duration(struct nt_parse *p, const char *value, uint64_t *ns, bool zero_allowed)
{
	int err = nt_parse_duration(value, ns);

	if (err == -ERANGE)
		return nt_refuse(p, value,
				 "too long; give at most some hundred years, for example 24h");
	if (err && *value && strspn(value, "0123456789.") == strlen(value))
		return nt_refuse(p, value,
				 "a duration needs a unit; for example 250us, 40ms, 5s or 2m");
	if (err)
		return nt_refuse(p, value,
				 "not a duration; give for example 250us, 40ms, 5s or 2m");
	if (!*ns && !zero_allowed)
		return nt_refuse(p, value, "must be more than zero; for example 5s");
	return 0;
}

/* Calls each() for every element of a list separated by commas. */
static int for_each(struct nt_parse *p, const char *value,
		    int (*each)(struct nt_parse *p, const char *element, size_t length,
				const char *all))
{
	const char *element = value;
	int err;

	for (;;) {
		size_t length = strcspn(element, ",");

		err = each(p, element, length, value);
		if (err || !element[length])
			return err;
		element += length + 1;
	}
}

static int add_pid(struct nt_parse *p, const char *element, size_t length, const char *all)
{
	struct nt_options *opts = p->opts;
	uint64_t pid;

	if (!nt_parse_number(element, length, PID_MAX_LIMIT, &pid) || !pid)
		return nt_refuse(p, all,
				 "not a process id; give numbers such as 4242 or 4242,4243");
	for (unsigned int i = 0; i < opts->n_pids; i++)
		if (opts->pids[i] == (pid_t)pid)
			return 0;
	if (opts->n_pids == NT_MAX_PIDS)
		return nt_refuse(p, all,
				 "too many processes; give at most 64, or --name or --cgroup");
	opts->pids[opts->n_pids++] = pid;
	return 0;
}

static int set_pid(struct nt_parse *p, const char *value)
{
	return for_each(p, value, add_pid);
}

static struct nt_port_list *port_list(struct nt_parse *p)
{
	if (!strcmp(p->spelled, "--localport"))
		return &p->opts->local_ports;
	return strcmp(p->spelled, "--remoteport") ? &p->opts->ports : &p->opts->remote_ports;
}

static int add_port(struct nt_parse *p, const char *element, size_t length, const char *all)
{
	struct nt_port_list *list = port_list(p);
	uint64_t port;

	if (!nt_parse_number(element, length, 65535, &port) || !port)
		return nt_refuse(p, all, "not a port; give 1 to 65535, several with commas");
	if (list->count == NT_MAX_PORTS)
		return nt_refuse(p, all, "too many ports; give at most 32");
	list->port[list->count++] = port;
	return 0;
}

static int set_port(struct nt_parse *p, const char *value)
{
	return for_each(p, value, add_port);
}

static int set_name(struct nt_parse *p, const char *value)
{
	if (!*value)
		return nt_refuse(p, value, "empty; give a command name, as `ps -o comm` shows it");
	if (strlen(value) >= NT_NAME_LEN)
		return nt_refuse(p, value,
				 "the kernel keeps 15 bytes of a name; give its first 15");
	snprintf(p->opts->name, sizeof(p->opts->name), "%s", value);
	return 0;
}

static int set_cgroup(struct nt_parse *p, const char *value)
{
	if (value[0] != '/')
		return nt_refuse(p, value,
				 "not a cgroup path; give it from the root, as /system.slice/x");
	p->opts->cgroup = value;
	return 0;
}

/* proc_ns_get_link() asks ptrace_may_access() */
static int netns_refused(struct nt_parse *p, const char *value, int cause)
{
	if (cause == ENOENT)
		return nt_refuse(p, value, "no such process or file; ip netns lists some");
	if (cause != EACCES && cause != EPERM)
		return nt_refuse(p, value, strerror(cause));
	nt_refuse(p, value,
		  "not permitted; add CAP_SYS_PTRACE, or give a file that you may read, as "
		  "/run/netns/x");
	return -EPERM;
}

/* A process in the namespace, or a file that stands for it, as `ip netns` makes them. */
static int set_netns(struct nt_parse *p, const char *value)
{
	char path[64];
	struct stat st;
	uint64_t pid;
	bool is_netns;
	int fd;

	if (nt_parse_number(value, strlen(value), PID_MAX_LIMIT, &pid))
		snprintf(path, sizeof(path), "/proc/%u/ns/net", (unsigned int)pid);
	else if (value[0] != '/')
		return nt_refuse(p, value,
				 "not a namespace; give a process id or a path, as /run/netns/x");
	fd = open(value[0] == '/' ? value : path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return netns_refused(p, value, errno);
	/* it fails for anything that is no namespace: linux/nsfs.h */
	is_netns = ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET && !fstat(fd, &st);
	close(fd);
	if (!is_netns)
		return nt_refuse(p, value,
				 "no network namespace; give /proc/PID/ns/net or /run/netns/x");
	p->opts->netns = st.st_ino;
	return 0;
}

static int set_min(struct nt_parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->min_ns, true);
}

static int set_max_overhead(struct nt_parse *p, const char *value)
{
	const uint64_t percent_ppm = 10000;
	uint64_t ppm;

	if (nt_parse_decimal(value, strlen(value), percent_ppm, &ppm) || ppm > 100 * percent_ppm)
		return nt_refuse(p, value,
				 "not a share of the CPUs' time; give percent, from 0.0001 to 100");
	if (!ppm)
		return nt_refuse(p, value, "must be more than zero; for example 1, or 0.5");
	p->opts->max_overhead_ppm = ppm;
	return 0;
}

static int set_interval(struct nt_parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->interval_ns, false);
}

static int set_total_duration(struct nt_parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->duration_ns, false);
}

static int set_for(struct nt_parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->for_ns, false);
}

static int set_count(struct nt_parse *p, const char *value)
{
	if (!nt_parse_number(value, strlen(value), UINT32_MAX, &p->opts->count) || !p->opts->count)
		return nt_refuse(p, value, "not a number of reports; give 1 or more");
	return 0;
}

static int set_output(struct nt_parse *p, const char *value)
{
	if (!strcmp(value, "text"))
		p->opts->output = NT_OUTPUT_TEXT;
	else if (!strcmp(value, "json"))
		p->opts->output = NT_OUTPUT_JSON;
	else
		return nt_refuse(p, value, "no such output; give text or json");
	return 0;
}

static int set_json(struct nt_parse *p, const char *value)
{
	(void)value;
	p->opts->output = NT_OUTPUT_JSON;
	return 0;
}

static int set_hooks(struct nt_parse *p, const char *value)
{
	static const char *const names[] = {"auto", "function", "kprobe", "tracepoint"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(value, names[i])) {
			p->opts->hooks = i;
			return 0;
		}
	}
	return nt_refuse(p, value, "no such hooks; give auto, function, kprobe or tracepoint");
}

static int set_btf(struct nt_parse *p, const char *value)
{
	char what[128];
	struct stat st;
	int err = 0;

	if (stat(value, &st) || access(value, R_OK))
		err = errno;
	else if (S_ISDIR(st.st_mode)) /* access() is content with a directory */
		err = EISDIR;
	if (err) {
		snprintf(what, sizeof(what),
			 "cannot be read: %s; give a file with the kernel's BTF", strerror(err));
		return nt_refuse(p, value, what);
	}
	p->opts->btf = value;
	return 0;
}

static int set_socket(struct nt_parse *p, const char *value)
{
	struct sockaddr_un addr;

	if (value[0] != '/')
		return nt_refuse(p, value,
				 "not a path from the root; give one as " NT_DEFAULT_SOCKET);
	if (strlen(value) >= sizeof(addr.sun_path))
		return nt_refuse(p, value, "too long for a socket; give at most 107 bytes");
	p->opts->socket = value;
	return 0;
}

static int set_group(struct nt_parse *p, const char *value)
{
	const struct group *group = getgrnam(value);

	if (!group)
		return nt_refuse(p, value, "no such group; `getent group` lists them");
	p->opts->group = value;
	p->opts->group_id = group->gr_gid;
	return 0;
}

#define LEAST_WINDOW_NS 1000000000ULL

static int set_window(struct nt_parse *p, const char *value)
{
	int err = set_duration(p, value, &p->opts->window_ns, false);

	if (!err && p->opts->window_ns < LEAST_WINDOW_NS)
		return nt_refuse(p, value, "too short; give 1s or more");
	return err;
}

static int set_limit(struct nt_parse *p, const char *value, uint64_t *limit)
{
	const uint64_t most = 100000;

	if (!nt_parse_number(value, strlen(value), most, limit) || !*limit)
		return nt_refuse(p, value, "not a limit; give a number from 1 to 100000");
	return 0;
}

static int set_max_series(struct nt_parse *p, const char *value)
{
	return set_limit(p, value, &p->opts->max_series);
}

static int set_max_connections(struct nt_parse *p, const char *value)
{
	return set_limit(p, value, &p->opts->max_connections);
}

static int set_verbose(struct nt_parse *p, const char *value)
{
	(void)value;
	p->opts->verbose++;
	return 0;
}

static int set_command(struct nt_parse *p, const char *value)
{
	(void)value;
	if (!strcmp(p->spelled, "--help"))
		p->opts->command = NT_CMD_HELP;
	else if (!strcmp(p->spelled, "--version"))
		p->opts->command = NT_CMD_VERSION;
	else
		p->opts->command = NT_CMD_JSON_SCHEMA;
	return 0;
}

#define FLAG(field) offsetof(struct nt_options, field)
#define TRACE       NT_ON(NT_CMD_TRACE)
#define CHECK       NT_ON(NT_CMD_CHECK)
#define DAEMON      NT_ON(NT_CMD_DAEMON)
#define REPORT      NT_ON(NT_CMD_REPORT)
#define TOP         NT_ON(NT_CMD_TOP)
#define TOP_TRACE   (TOP | NT_TRACES_ITSELF)
#define FIX         NT_ON(NT_CMD_FIX)
#define ALL         ~0U

static const struct nt_option_row rows[] = {
	{0, NULL, NULL, "Whose connections", NULL, 0, false, 0},
	{'p', "pid", "PID[,PID]",
	 "sockets of these processes, either end; with their\n"
	 "threads and children",
	 set_pid, 0, true, TRACE | TOP_TRACE | FIX},
	{'n', "name", "NAME", "likewise by command name", set_name, 0, false,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{'c', "cgroup", "PATH", "likewise by cgroup v2", set_cgroup, 0, false,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{NT_OPT_NETNS, "netns", "PID|PATH",
	 "only sockets of this network namespace: a process in\n"
	 "it, or its file; ends in others count as remote",
	 set_netns, 0, false, TRACE | DAEMON | TOP_TRACE | FIX},
	{'P', "port", "PORT[,PORT]", "local or remote port; also several, as the next two",
	 set_port, 0, true, TRACE | DAEMON | TOP_TRACE | FIX},
	{'L', "localport", "PORT", "local port", set_port, 0, true,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{'D', "remoteport", "PORT", "remote port", set_port, 0, true,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{'4', "ipv4", NULL, "IPv4 only", NULL, FLAG(only_v4), false,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{'6', "ipv6", NULL, "IPv6 only", NULL, FLAG(only_v6), false,
	 TRACE | DAEMON | TOP_TRACE | FIX},
	{0, NULL, NULL, "What to report, and when", NULL, 0, false, 0},
	{'m', "min", "DURATION", "stalls and holds of at least this (default 1ms)", set_min, 0,
	 false, TRACE | DAEMON | TOP_TRACE | FIX},
	{'i', "interval", "DURATION",
	 "a report each interval instead of a line each stall;\n"
	 "top: how often it looks (default 1s)",
	 set_interval, 0, false, TRACE | TOP},
	{NT_OPT_COUNT, "count", "N", "stop after N reports", set_count, 0, false, TRACE},
	{'d', "duration", "DURATION", "stop after this", set_total_duration, 0, false, TRACE | TOP},
	{'a', "all-holds", NULL, "also holds that are no stall", NULL, FLAG(all_holds), false,
	 TRACE},
	{'U', "stacks", NULL, "where in the program the held write was made", NULL, FLAG(stacks),
	 false, TRACE | DAEMON | TOP_TRACE | FIX},
	{NT_OPT_TIMELINE, "timeline", NULL,
	 "every write, read, segment, hold and put-off ACK, in\n"
	 "order; choose few connections, by -p or -P",
	 NULL, FLAG(timeline), false, TRACE},
	{0, NULL, NULL, "How", NULL, 0, false, 0},
	{'o', "output", "text|json", "JSON: one object a line on stdout", set_output, 0, false,
	 TRACE | CHECK | REPORT | FIX},
	{'j', "json", NULL, "the same as --output json", set_json, 0, false,
	 TRACE | CHECK | REPORT | FIX},
	{'w', "wide", NULL, "full addresses and names, beyond 80 columns", NULL, FLAG(wide), false,
	 TRACE | REPORT | FIX},
	{NT_OPT_HOOKS, "hooks", "WHICH", "auto (default), function, kprobe or tracepoint",
	 set_hooks, 0, false, TRACE | CHECK | DAEMON | TOP_TRACE | FIX},
	{NT_OPT_BTF, "btf", "FILE", "BTF for a kernel without its own", set_btf, 0, false,
	 TRACE | CHECK | DAEMON | TOP_TRACE | FIX},
	{NT_OPT_MAX_OVERHEAD, "max-overhead", "PERCENT",
	 "let go of hooks rather than take more of the CPUs'\n"
	 "time than this, as sampled now and then",
	 set_max_overhead, 0, false, TRACE | DAEMON},
	{NT_OPT_PROGRESS, "progress", NULL, "how far it is, on stderr while that is a terminal",
	 NULL, FLAG(progress), false, TRACE},
	{'q', "quiet", NULL, "no word but errors and `ready` on stderr", NULL, FLAG(quiet), false,
	 TRACE | DAEMON | FIX},
	{'v', "verbose", NULL, "what libbpf and the verifier say; twice: all of it", set_verbose, 0,
	 true, TRACE | CHECK | DAEMON | FIX},
	{'h', "help", NULL, "this text", set_command, 0, false, ALL},
	{NT_OPT_VERSION, "version", NULL, "the version", set_command, 0, false, ALL},
	{NT_OPT_JSON_SCHEMA, "json-schema", NULL, "the JSON Schema of the records", set_command, 0,
	 false, ALL},
	{0, NULL, NULL, "The experiment of `fix`", NULL, 0, false, 0},
	{NT_OPT_NODELAY, "nodelay", NULL, "set TCP_NODELAY where the process sends", NULL,
	 FLAG(nodelay), false, FIX},
	{NT_OPT_QUICKACK, "quickack", NULL, "set TCP_QUICKACK, over and over, where it receives",
	 NULL, FLAG(quickack), false, FIX},
	{NT_OPT_FOR, "for", "DURATION", "for so long, after looking for as long (default 10s)",
	 set_for, 0, false, FIX},
	{'y', "yes", NULL, "do not ask before anything is set", NULL, FLAG(yes), false, FIX},
	{NT_OPT_ALL, "all", NULL, "also on connections that did not stall", NULL, FLAG(all), false,
	 FIX},
	{0, NULL, NULL, "The daemon and its reports", NULL, 0, false, 0},
	{NT_OPT_SOCKET, "socket", "PATH", "where they meet (default\n" NT_DEFAULT_SOCKET ")",
	 set_socket, 0, false, DAEMON | REPORT | TOP},
	{'f', "follow", NULL, "report: each stall, as it happens", NULL, FLAG(follow), false,
	 REPORT},
	{NT_OPT_GROUP, "group", "NAME", "daemon: the group that may use the socket", set_group, 0,
	 false, DAEMON},
	{NT_OPT_WINDOW, "window", "DURATION",
	 "daemon: reports look back on this at most, half of\n"
	 "it at least (default 10m)",
	 set_window, 0, false, DAEMON},
	{NT_OPT_BY_CGROUP, "by-cgroup", NULL, "daemon: series told apart by cgroup too", NULL,
	 FLAG(by_cgroup), false, DAEMON},
	{NT_OPT_MAX_SERIES, "max-series", "N",
	 "daemon: series kept (default 1000); more are counted\n"
	 "as `other`",
	 set_max_series, 0, false, DAEMON},
	{NT_OPT_MAX_CONNECTIONS, "max-connections", "N",
	 "daemon: connections kept for reports (default 1024)", set_max_connections, 0, false,
	 DAEMON},
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == NT_N_OPTION_ROWS, "NT_N_OPTION_ROWS counts them");

const struct nt_option_row *const nt_option_rows = rows;
