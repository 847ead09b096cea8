// SPDX-License-Identifier: GPL-2.0
#include "cmd/options_table.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/siphash.h"
#include "base/text.h"

/* ---- the tables ---- */

/* These follow the order of enum nt_output and enum nt_hooks. */
static const char *const outputs[] = {"text", "json", NULL};
static const char *const hooks[] = {"auto", "function", "kprobe", "tracepoint", NULL};

/* Gives the offset of a member of struct nt_settings; a member of another type does not compile. */
#define MEMBER(type, member)                    \
	(offsetof(struct nt_settings, member) + \
	 0 * _Generic(((struct nt_settings *)0)->member, type : 1))

/* clang-format off */
#define FLAG(member)     .kind = NT_FLAG, .field = MEMBER(bool, member)
#define CHOICE(member)   .kind = NT_CHOICE, .field = MEMBER(unsigned int, member)
#define ANSWER(command)  .kind = NT_ANSWER, .choice = NT_CMD_##command, .commands = ~0U
#define ENUM(member)     .kind = NT_ENUM, .field = MEMBER(unsigned int, member)
#define DURATION(member) .kind = NT_DURATION, .argument = "DURATION", .field = MEMBER(uint64_t, member)
#define COUNT(member)    .kind = NT_COUNT, .argument = "N", .least = 1, .field = MEMBER(uint64_t, member)
#define PORTS(member)    .kind = NT_PORTS, .field = MEMBER(struct nt_port_list, member)

#define TRACE     NT_ON(NT_CMD_TRACE)
#define CHECK     NT_ON(NT_CMD_CHECK)
#define DAEMON    NT_ON(NT_CMD_DAEMON)
#define REPORT    NT_ON(NT_CMD_REPORT)
#define TOP       NT_ON(NT_CMD_TOP)
#define FIX       NT_ON(NT_CMD_FIX)
#define SAMPLE    NT_ON(NT_CMD_SAMPLE)
#define TOP_TRACE (TOP | NT_TRACES_ITSELF)
#define TRACERS   (TRACE | DAEMON | TOP_TRACE | FIX)

const struct nt_option nt_options[] = {
	{.help = "Which connections"},
	{.name = "pid", .letter = 'p', .kind = NT_PIDS, .argument = "PID[,PID]",
	 .set = NT_ONE_CHOICE_OF_PROCESSES, .commands = TRACE | TOP_TRACE | FIX | SAMPLE,
	 .help = "trace the sockets of these processes, their threads and children, at either "
		 "end",
	 .more = "Sockets that are open already are included. The option may be given several "
		 "times."},
	{.name = "name", .letter = 'n', .kind = NT_COMM, .argument = "NAME",
	 .set = NT_ONE_CHOICE_OF_PROCESSES, .commands = TRACERS | SAMPLE,
	 .help = "trace all processes of this command name",
	 .more = "`ps -o comm` shows it. The kernel keeps 15 bytes of it."},
	{.name = "cgroup", .letter = 'c', .kind = NT_CGROUP, .argument = "PATH",
	 .set = NT_ONE_CHOICE_OF_PROCESSES, .commands = TRACERS | SAMPLE,
	 .help = "trace all processes in this cgroup v2 and below it",
	 .more = "The path counts from the root of the hierarchy, as /proc/PID/cgroup shows "
		 "it."},
	{.name = "container", .kind = NT_CONTAINER, .argument = "ID|NAME",
	 .set = NT_ONE_CHOICE_OF_PROCESSES, .commands = TRACERS | SAMPLE,
	 .help = "trace all processes in this container",
	 .more = "12 digits of its ID are enough. For anything else docker, podman and nerdctl "
		 "are asked."},
	{.name = "pod", .kind = NT_POD, .argument = "UID", .set = NT_ONE_CHOICE_OF_PROCESSES,
	 .commands = TRACERS | SAMPLE,
	 .help = "trace all processes in this Kubernetes pod",
	 .more = "`kubectl get pod -o yaml` shows its uid."},
	{.name = "unit", .kind = NT_UNIT, .argument = "UNIT", .set = NT_ONE_CHOICE_OF_PROCESSES,
	 .commands = TRACERS | SAMPLE,
	 .help = "trace all processes in this unit of systemd, such as nginx.service"},
	{.name = "user", .kind = NT_USER, .argument = "NAME", .commands = TRACE,
	 .help = "run the command behind -- as this user (default: who called sudo)"},
	{.name = "netns", .kind = NT_NETNS, .argument = "PID|PATH", .commands = TRACERS | SAMPLE,
	 .help = "trace only sockets of this network namespace, named by a process in it or by "
		 "its file",
	 .more = "A file such as /run/netns/NAME stands for a namespace. Ends in other "
		 "namespaces count as remote."},
	{.name = "port", .letter = 'P', PORTS(ports), .argument = "PORT[,PORT]", .commands = TRACERS | SAMPLE,
	 .help = "trace only connections with one of these ports, local or remote; repeatable, "
		 "like -L and -D"},
	{.name = "localport", .letter = 'L', PORTS(local_ports), .argument = "PORT", .commands = TRACERS | SAMPLE,
	 .help = "trace only connections with this local port"},
	{.name = "remoteport", .letter = 'D', PORTS(remote_ports), .argument = "PORT", .commands = TRACERS | SAMPLE,
	 .help = "trace only connections with this remote port"},
	{.name = "ipv4", .letter = '4', FLAG(only_v4), .set = NT_ONE_FAMILY, .commands = TRACERS | SAMPLE,
	 .help = "trace IPv4 only"},
	{.name = "ipv6", .letter = '6', FLAG(only_v6), .set = NT_ONE_FAMILY, .commands = TRACERS | SAMPLE,
	 .help = "trace IPv6 only"},

	{.help = "What to report, and when"},
	{.name = "min", .letter = 'm', DURATION(min_ns), .standard = "1ms", .commands = TRACERS,
	 .help = "report only stalls and holds of at least this"},
	{.name = "interval", .letter = 'i', DURATION(interval_ns), .least = 1, .commands = TRACE | TOP | SAMPLE,
	 .help = "print a report each interval, and in text no line for each stall; `top` refreshes "
		 "this often (default 1s), `sample` reports (default 5s)"},
	{.name = "count", COUNT(count), .commands = TRACE | SAMPLE,
	 .help = "stop after N reports",
	 .more = "It needs --interval or `INTERVAL`, with `sample` too."},
	{.name = "duration", .letter = 'd', DURATION(duration_ns), .least = 1, .commands = TRACE | TOP | SAMPLE,
	 .help = "stop after this time"},
	{.name = "fail-on-stall", .kind = NT_COUNT, .argument = "[=N]", .least = 1, .field = MEMBER(uint64_t, fail_on_stalls),
	 .commands = TRACE,
	 .help = "end with exit code 5 if there were N stalls or more (default 1)",
	 .more = "So a build fails when it becomes slower. A command that fails by itself keeps "
		 "its exit code."},
	{.name = "all-holds", .letter = 'a', FLAG(all_holds), .commands = TRACE | SAMPLE,
	 .help = "also report holds that are no stall"},
	{.name = "stacks", .letter = 'U', FLAG(stacks), .commands = TRACERS,
	 .help = "show where in the program the held write was made",
	 .more = "The calls stand innermost first. Another process names them, once for each "
		 "stack, in 1 to 40 ms of CPU; see `SECURITY`."},
	{.name = "timeline", FLAG(timeline), .commands = TRACE,
	 .help = "print every write, read, segment, hold and pending ACK in order; choose few "
		 "connections, with -p or -P",
	 .more = "Each event costs the host some 0.2 us; see `TIMELINE`."},

	{.name = "late-acks", FLAG(late_acks), .commands = TRACE,
	 .help = "also record each ACK that went out late, and each hold that one may have ended, "
		 "for `nagletrace-join`",
	 .more = "It goes with --output json. Each host finds its witness among the other's; see "
		 "`FLEETS`."},
	{.name = "fleet-key", .kind = NT_KEY_FILE, .argument = "FILE", .commands = TRACE | DAEMON,
	 .help = "hash the ACKs of stalls with the key in this file, as all hosts of the fleet do",
	 .more = "The file holds 16 bytes or 32 hexadecimal digits, and other users may not read "
		 "it. A second line may have the next key, and from when on it is used; see "
		 "`FLEETS`. Without this option each start makes a key of its own, and its records "
		 "cannot be joined with other hosts'."},
	{.name = "host", .kind = NT_HOST, .argument = "NAME", .commands = TRACE | DAEMON,
	 .help = "call this host NAME in JSON records (default: as `hostname` does)",
	 .more = "In a pod the default is the pod's name, which is another one after each update; "
		 "give the node's."},

	{.help = "Output and hooks"},
	{.name = "output", .letter = 'o', ENUM(output), .words = outputs, .argument = "text|json",
	 .set = NT_ONE_FORMAT, .standard = "text", .commands = TRACE | CHECK | REPORT | FIX | SAMPLE,
	 .help = "print text, or JSON with one object a line",
	 .more = "With `json`, everything else goes to the standard error output."},
	{.name = "json", .letter = 'j', CHOICE(output), .choice = NT_OUTPUT_JSON,
	 .set = NT_ONE_FORMAT, .commands = TRACE | CHECK | REPORT | FIX | SAMPLE,
	 .help = "same as --output json"},
	{.name = "output-file", .kind = NT_OUTPUT_FILE, .argument = "FILE", .field = MEMBER(const char *, output_file),
	 .commands = TRACE,
	 .help = "write reports and records to this file, not to stdout or, beside a command, to "
		 "stderr",
	 .more = "What the file held is lost once the trace begins."},
	{.name = "wide", .letter = 'w', FLAG(wide), .commands = TRACE | REPORT | FIX | SAMPLE,
	 .help = "print full addresses and names, beyond 80 columns",
	 .more = "Tables have more columns then, and each connection that stalled has a block of "
		 "its own."},
	{.name = "utc", FLAG(utc), .commands = TRACE,
	 .help = "print the date, the time and the zone of each stall: 2026-11-28T02:45:42.123456Z",
	 .more = "Without it, text has the local time of day. Lines are wider than 80 columns then. JSON always has this form."},
	{.name = "hooks", ENUM(hooks), .words = hooks, .argument = "WHICH", .standard = "auto", .commands = CHECK | TRACERS,
	 .help = "choose the hooks: auto, function, kprobe or tracepoint",
	 .more = "`function` is fentry and fexit, `kprobe` the same places by kprobes. `auto` "
		 "takes the cheapest family that is whole on this kernel, and says which and why: tracepoints since 6.3, else functions, else kprobes. All "
		 "families give the same verdicts."},
	{.name = "btf", .kind = NT_BTF_FILE, .field = MEMBER(const char *, btf), .argument = "FILE",
	 .commands = CHECK | TRACERS | SAMPLE,
	 .help = "read the kernel's types (BTF) from this file",
	 .more = "Kernels without /sys/kernel/btf/vmlinux need it."},
	{.name = "max-overhead", .kind = NT_PERCENT, .argument = "PERCENT",
	 .field = MEMBER(uint64_t, max_overhead_ppm), .commands = TRACE | DAEMON,
	 .help = "detach hooks when our programs use more than this share of CPU time (sampled "
		 "every 5 s)",
	 .more = "A sample takes 0.2 s. It does not go with --standby; see `OVERHEAD`."},
	{.name = "progress", FLAG(progress), .commands = TRACE,
	 .help = "show the progress on stderr while that is a terminal"},
	{.name = "quiet", .letter = 'q', FLAG(quiet), .set = NT_ONE_LOUDNESS, .commands = TRACE | DAEMON | FIX | SAMPLE,
	 .help = "print only errors and `ready` on stderr"},
	{.name = "verbose", .letter = 'v', .kind = NT_LEVEL, .field = MEMBER(int, verbose),
	 .set = NT_ONE_LOUDNESS, .commands = TRACE | CHECK | DAEMON | FIX | SAMPLE,
	 .help = "print messages of libbpf and the verifier; give it twice for all of them"},
	{.name = "help", .letter = 'h', ANSWER(HELP),
	 .help = "print this help and exit",
	 .more = "After a command, the options of that command only."},
	{.name = "version", .letter = 'V', ANSWER(VERSION),
	 .help = "print the version and exit"},
	{.name = "json-schema", ANSWER(JSON_SCHEMA),
	 .help = "print the JSON Schema of the records and exit"},

	{.help = "The experiment of `fix`"},
	{.name = "nodelay", FLAG(nodelay), .set = NT_ONE_REMEDY, .commands = FIX,
	 .help = "set TCP_NODELAY where the process sends",
	 .more = "Only connections that stalled are changed, unless --all is given."},
	{.name = "quickack", FLAG(quickack), .set = NT_ONE_REMEDY, .commands = FIX,
	 .help = "keep setting TCP_QUICKACK where the process receives",
	 .more = "Only connections whose sender stalled are changed, unless --all is given."},
	{.name = "quickack-limit", DURATION(quickack_limit_ns), .least = 1, .set = NT_ONE_REMEDY, .commands = FIX,
	 .help = "have no ACK delayed longer than this, with --keep or --pin",
	 .more = "The kernel takes two jiffies (8ms at HZ=250) to 200ms."},
	{.name = "keep", FLAG(keep), .set = NT_ONE_TIME_TO_KEEP, .commands = FIX,
	 .help = "set it on each new connection of the cgroup for as long as this command runs",
	 .more = "No program is changed and nobody is asked; see `KEPT REMEDIES`."},
	{.name = "pin", FLAG(pin), .set = NT_ONE_TIME_TO_KEEP, .commands = FIX,
	 .help = "set it on each new connection of the cgroup until --undo"},
	{.name = "undo", FLAG(undo), .set = NT_ONE_TIME_TO_KEEP, .commands = FIX,
	 .help = "end what --pin set"},
	{.name = "for", DURATION(for_ns), .least = 1, .standard = "10s", .commands = FIX,
	 .help = "set it for this long, after watching for as long"},
	{.name = "yes", .letter = 'y', FLAG(yes), .commands = FIX,
	 .help = "do not ask before setting anything",
	 .more = "Without this option, `fix` needs a terminal."},
	{.name = "all", FLAG(all), .commands = FIX,
	 .help = "include connections that did not stall",
	 .more = "It includes new connections too, within a second."},

	{.help = "The daemon and its readers"},
	{.name = "socket", .kind = NT_SOCKET_PATH, .field = MEMBER(const char *, socket), .argument = "PATH",
	 .standard = NT_DEFAULT_SOCKET, .commands = DAEMON | REPORT | TOP,
	 .help = "use this path for the daemon's socket"},
	{.name = "follow", .letter = 'f', FLAG(follow), .set = NT_ONE_REPORT, .commands = REPORT,
	 .help = "`report`: print each stall as it happens"},
	{.name = "health", FLAG(health), .set = NT_ONE_REPORT, .commands = REPORT,
	 .help = "`report`: print whether the daemon sees stalls: ok, dropping or blind",
	 .more = "`dropping`: records found no room in the last minute. `blind`: its hooks are detached, "
		 "for --max-overhead, or could not be attached, or --standby cannot look at sockets; only "
		 "then is the exit code 1."},
	{.name = "group", .kind = NT_USER_GROUP, .argument = "NAME", .commands = DAEMON,
	 .help = "`daemon`: let this group use the socket",
	 .more = "A user may have 16 connections to it, all users together 56, and with root "
		 "and the daemon's own user 64. The daemon refuses others with a message."},
	{.name = "window", DURATION(window_ns), .least = 1000000000, .standard = "10m", .commands = DAEMON,
	 .help = "`daemon`: let reports cover at most this time, and at least half of it"},
	{.name = "standby", FLAG(standby), .commands = DAEMON,
	 .help = "`daemon`: attach hooks only while something stalls; look at the sockets twice a "
		 "second until then",
	 .more = "Looks take less than 0.1 % of a CPU, and find what this host sends. Before Linux "
		 "5.13 it takes kprobes, since function hooks are attached only once there; see "
		 "`STANDBY`."},
	{.name = "standby-after", DURATION(quiet_ns), .least = 1000000000, .standard = "5m", .commands = DAEMON,
	 .help = "`daemon --standby`: detach the hooks after this time without a stall"},
	{.name = "by-cgroup", FLAG(by_cgroup), .commands = DAEMON,
	 .help = "`daemon`: count each cgroup in series of its own"},
	{.name = "max-late-acks", .kind = NT_COUNT, .argument = "N",
	 .field = MEMBER(uint64_t, max_late_acks), .most = 4000, .standard = "100", .commands = DAEMON,
	 .help = "`daemon`: stream N late ACKs and holds a second on average for "
		 "nagletrace-join, and no more; 0: none",
	 .more = "A stream of JSON has them besides the stalls. The daemon counts the rest as "
		 "`late_ack_limit`; nagletrace-join contradicts nothing of that time by this "
		 "host."},
	{.name = "max-series", COUNT(max_series), .most = 100000, .standard = "1000", .commands = DAEMON,
	 .help = "`daemon`: keep at most N series; count the rest as `other`"},
	{.name = "max-connections", COUNT(max_connections), .most = 100000, .standard = "1024",
	 .commands = DAEMON,
	 .help = "`daemon`: keep at most N connections for reports"},
	{},
};
/* clang-format on */
_Static_assert(sizeof(nt_options) / sizeof(nt_options[0]) <= NT_MAX_OPTIONS,
	       "given[] has a place for each");

const struct nt_command_row nt_commands[] = {
	{"check",
	 NT_CMD_CHECK,
	 "",
	 "show what this kernel offers and lacks",
	 {"sudo nagletrace check", "sudo nagletrace check --hooks tracepoint -o json"}},
	{"daemon",
	 NT_CMD_DAEMON,
	 "[OPTIONS]",
	 "stay attached and answer on a socket",
	 {"sudo nagletrace daemon --group adm", "sudo nagletrace daemon --standby --by-cgroup"}},
	{"report",
	 NT_CMD_REPORT,
	 "[-f]",
	 "print what the daemon saw, without root",
	 {"nagletrace report", "nagletrace report -f --wide"}},
	{"top",
	 NT_CMD_TOP,
	 "[OPTIONS]",
	 "watch live, by the daemon or as root",
	 {"nagletrace top", "sudo nagletrace top -n nginx --stacks"}},
	{"fix",
	 NT_CMD_FIX,
	 "-p PID --nodelay",
	 "try the remedy on a running process",
	 {"sudo nagletrace fix -p 4242 --nodelay --for 30s",
	  "sudo nagletrace fix -n redis-server --quickack --yes"}},
	{"sample",
	 NT_CMD_SAMPLE,
	 "[INTERVAL [COUNT]]",
	 "show who is held now, with no hook",
	 {"sudo nagletrace sample 5 1", "sudo nagletrace sample -n nginx --all-holds 5"}},
	{},
};

/* ---- messages ---- */

int nt_fail(struct nt_parse *p, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(p->err, p->err_size, format, args);
	va_end(args);
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

/* ---- a value of each kind ---- */

/* Returns where an option stores its value. */
static void *field_of(struct nt_parse *p, const struct nt_option *option)
{
	return (char *)p->settings + option->field;
}

static int read_flag(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	*(bool *)field_of(p, option) = true;
	return 0;
}

static int read_level(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	++*(int *)field_of(p, option);
	return 0;
}

static int read_choice(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	*(unsigned int *)field_of(p, option) = option->choice;
	return 0;
}

static int read_answer(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	p->command = option->choice;
	return 0;
}

static int read_enum(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	char what[128];
	size_t at;

	for (unsigned int i = 0; option->words[i]; i++) {
		if (!strcmp(value, option->words[i])) {
			*(unsigned int *)field_of(p, option) = i;
			return 0;
		}
	}
	at = snprintf(what, sizeof(what), "no such %s; give %s", option->name, option->words[0]);
	for (unsigned int i = 1; option->words[i]; i++)
		at += snprintf(what + at, sizeof(what) - at, "%s%s",
			       option->words[i + 1] ? ", " : " or ", option->words[i]);
	return nt_refuse(p, value, what);
}

/* A century: what is added to the time of day or of the boot does not wrap. */
#define MOST_DURATION_NS (100 * 366 * 24 * 3600000000000ULL)

static int read_duration(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const uint64_t second_ns = 1000000000;
	uint64_t *ns = field_of(p, option);
	int err = nt_parse_duration(value, ns);
	char what[64];

	if (err == -ERANGE || (!err && *ns > MOST_DURATION_NS))
		return nt_refuse(p, value, "too long; give a shorter duration, for example 24h");
	if (err && *value && strspn(value, "0123456789.") == strlen(value))
		return nt_refuse(p, value,
				 "a duration needs a unit; for example 250us, 40ms, 5s or 2m");
	if (err)
		return nt_refuse(p, value,
				 "not a duration; give for example 250us, 40ms, 5s or 2m");
	if (!*ns && option->least)
		return nt_refuse(p, value, "must be more than zero; for example 5s");
	if (*ns < option->least) {
		snprintf(what, sizeof(what), "too short; give %us or more",
			 (unsigned int)(option->least / second_ns));
		return nt_refuse(p, value, what);
	}
	return 0;
}

static int read_count(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	uint64_t *count = field_of(p, option);
	char what[64] = "not a count; give 1 or more";

	if (!value) {
		*count = 1;
		return 0;
	}
	if (nt_parse_number(value, strlen(value), option->most ? option->most : UINT32_MAX,
			    count) &&
	    *count >= option->least)
		return 0;
	if (option->most)
		snprintf(what, sizeof(what), "not a limit; give a number from %u to %u",
			 (unsigned int)option->least, (unsigned int)option->most);
	return nt_refuse(p, value, what);
}

static int read_percent(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const uint64_t percent_ppm = 10000;
	uint64_t *ppm = field_of(p, option);

	if (nt_parse_decimal(value, strlen(value), percent_ppm, ppm) || *ppm > 100 * percent_ppm)
		return nt_refuse(p, value,
				 "not a share of CPU time; give 0.0001 to 100, in percent");
	if (!*ppm)
		return nt_refuse(p, value, "must be more than zero; for example 1, or 0.5");
	return 0;
}

#define PID_MAX_LIMIT 4194304 /* include/linux/threads.h */

static int add_pid(struct nt_parse *p, const char *text, size_t length, const char *all)
{
	struct nt_settings *settings = p->settings;
	uint64_t pid;

	if (!nt_parse_number(text, length, PID_MAX_LIMIT, &pid) || !pid)
		return nt_refuse(p, all,
				 "not a process id; give numbers such as 4242 or 4242,4243");
	for (unsigned int i = 0; i < settings->n_pids; i++)
		if (settings->pids[i] == (pid_t)pid)
			return 0;
	if (settings->n_pids == NT_MAX_PIDS)
		return nt_refuse(p, all,
				 "too many processes; give at most 64, or use --name or --cgroup");
	settings->pids[settings->n_pids++] = pid;
	return 0;
}

static int read_pids(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const char *text = value;

	for (;;) {
		size_t length = strcspn(text, ",");
		int err = add_pid(p, text, length, value);

		if (err || !text[length])
			return err;
		text += length + 1;
	}
}

static int read_ports(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	struct nt_port_list *list = field_of(p, option);
	const char *text = value;

	for (;;) {
		size_t length = strcspn(text, ",");
		uint64_t port;

		if (!nt_parse_number(text, length, 65535, &port) || !port)
			return nt_refuse(
				p, value,
				"not a port; give 1 to 65535, with commas between several");
		if (list->count == NT_MAX_PORTS)
			return nt_refuse(p, value, "too many ports; give at most 32");
		list->port[list->count++] = port;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

static int read_comm(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	if (!*value)
		return nt_refuse(p, value, "empty; give a command name, as `ps -o comm` shows it");
	if (strlen(value) >= NT_NAME_LEN)
		return nt_refuse(p, value,
				 "the kernel keeps 15 bytes of a name; give its first 15");
	snprintf(p->settings->name, sizeof(p->settings->name), "%s", value);
	return 0;
}

static int read_cgroup(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	if (value[0] != '/')
		return nt_refuse(
			p, value,
			"not a cgroup path; give it from the root, such as /system.slice/x");
	p->settings->cgroup = value;
	return 0;
}

static int set_cgroup(struct nt_parse *p, enum nt_cgroup_by by, const char *value)
{
	p->settings->cgroup = value;
	p->settings->cgroup_by = by;
	return 0;
}

#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* As docker checks names. A shell that runs a runtime gets it later: capture/find_cgroup.c. */
static int read_container(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const size_t most = 128;
	size_t length = strlen(value);

	if (!strspn(value, LETTERS_AND_DIGITS) || length > most ||
	    strspn(value, LETTERS_AND_DIGITS "_.-") != length)
		return nt_refuse(p, value,
				 "neither an ID nor a name of a container; `docker ps` or `podman "
				 "ps` lists them");
	return set_cgroup(p, NT_CGROUP_CONTAINER, value);
}

static int read_pod(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	size_t length = strspn(value, "0123456789abcdef-");

	if (value[length] || (length != 36 && length != 32))
		return nt_refuse(p, value,
				 "not the UID of a pod; `kubectl get pod NAME -o yaml` shows it");
	return set_cgroup(p, NT_CGROUP_POD, value);
}

static int read_unit(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	static const char *const types[] = {".service", ".scope", ".slice"};
	size_t length = strlen(value);

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !strchr(value, '/'); i++)
		if (length > strlen(types[i]) &&
		    !strcmp(value + length - strlen(types[i]), types[i]))
			return set_cgroup(p, NT_CGROUP_UNIT, value);
	return nt_refuse(p, value, "not a unit with processes; give for example nginx.service");
}

/* The kernel's proc_ns_get_link() asks ptrace_may_access() here. */
static int netns_refused(struct nt_parse *p, const char *value, int cause)
{
	if (cause == ENOENT)
		return nt_refuse(p, value, "no such process or file; `ip netns` lists namespaces");
	if (cause != EACCES && cause != EPERM)
		return nt_refuse(p, value, strerror(cause));
	nt_refuse(p, value,
		  "not permitted; add CAP_SYS_PTRACE, or give a file that you may read, "
		  "such as /run/netns/x");
	return -EPERM;
}

/* Reads a namespace: that of a process, or a file that stands for one, as `ip netns` makes them. */
static int read_netns(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	char path[64];
	struct stat st;
	uint64_t pid;
	bool is_netns;
	int fd;

	if (nt_parse_number(value, strlen(value), PID_MAX_LIMIT, &pid))
		snprintf(path, sizeof(path), "/proc/%u/ns/net", (unsigned int)pid);
	else if (value[0] != '/')
		return nt_refuse(
			p, value,
			"not a namespace; give a process id or a path such as /run/netns/x");
	fd = open(value[0] == '/' ? value : path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return netns_refused(p, value, errno);
	/* this ioctl fails for anything but a namespace: linux/nsfs.h */
	is_netns = ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET && !fstat(fd, &st);
	close(fd);
	if (!is_netns)
		return nt_refuse(p, value,
				 "not a network namespace; give /proc/PID/ns/net or /run/netns/x");
	p->settings->netns = st.st_ino;
	return 0;
}

static int read_user(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	if (!getpwnam(value))
		return nt_refuse(p, value, "no such user; `getent passwd` lists them");
	p->settings->user = value;
	return 0;
}

static int read_user_group(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const struct group *group = getgrnam(value);

	if (!group)
		return nt_refuse(p, value, "no such group; `getent group` lists them");
	p->settings->group = value;
	p->settings->group_id = group->gr_gid;
	return 0;
}

static int read_btf_file(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	char what[128];
	struct stat st;
	int err = 0;

	if (stat(value, &st) || access(value, R_OK))
		err = errno;
	else if (S_ISDIR(st.st_mode)) /* access() accepts a directory */
		err = EISDIR;
	if (err) {
		snprintf(what, sizeof(what),
			 "cannot read it: %s; give a file with the kernel's BTF", strerror(err));
		return nt_refuse(p, value, what);
	}
	*(const char **)field_of(p, option) = value;
	return 0;
}

/* Checks an open key file; NULL: it can be read as a key. Members of its group may read it, since
 * systemd's credentials and Kubernetes' fsGroup need that. */
static const char *key_file_fault(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "not a file";
	if (st.st_mode & S_IRWXO)
		return "other users may use it; `chmod 600` it, and make a new key if they may "
		       "have read it";
	return NULL;
}

/* Takes the next key, and from when on it is used, from the second line of the file. */
static bool take_next_key(struct nt_settings *settings, const char *line, size_t length)
{
	size_t digits = 2 * sizeof(settings->fleet_keys[1]);
	char from[NT_UTC_LEN] = "";
	struct tm tm = {};
	const char *end;

	if (length <= digits + 1 || length - digits - 1 >= sizeof(from) || line[digits] != ' ' ||
	    !nt_siphash_key(line, digits, settings->fleet_keys[1]))
		return false;
	memcpy(from, line + digits + 1, length - digits - 1);
	end = strptime(from, "%Y-%m-%dT%H:%M:%SZ", &tm);
	settings->next_fleet_key_ns = timegm(&tm) * (int64_t)NT_SECOND_NS;
	return end && !end[strspn(end, "\r\n")] && settings->next_fleet_key_ns > 0;
}

static int read_key_file(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	char text[96], what[128];
	const char *fault, *line;
	ssize_t length, first;
	int fd;

	fd = open(value, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	fault = fd < 0 ? strerror(errno) : key_file_fault(fd);
	length = fault ? 0 : read(fd, text, sizeof(text));
	if (length < 0)
		fault = strerror(errno);
	if (fd >= 0)
		close(fd);
	if (fault) {
		snprintf(what, sizeof(what), "cannot take the key: %s", fault);
		return nt_refuse(p, value, what);
	}
	line = length > (ssize_t)sizeof(p->settings->fleet_keys[0]) ? memchr(text, '\n', length)
								    : NULL;
	first = line ? line + 1 - text : length;
	p->settings->has_fleet_key = nt_siphash_key(text, first, p->settings->fleet_keys[0]);
	if (first < length && !take_next_key(p->settings, text + first, length - first))
		fault = "the second line is no next key; give 32 hexadecimal digits and from when "
			"on it is used, as 2030-01-31T12:00:00Z";
	explicit_bzero(text, sizeof(text));
	if (p->settings->has_fleet_key && fault)
		return nt_refuse(p, value, fault);
	if (!p->settings->has_fleet_key)
		return nt_refuse(p, value,
				 "not a key; give a file of 16 bytes or 32 hexadecimal digits, as "
				 "`openssl rand -hex 16` makes");
	return 0;
}

static int read_host(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	size_t length = strlen(value);

	if (!length || length > NT_HOST_MAX || strspn(value, LETTERS_AND_DIGITS "_.-") != length)
		return nt_refuse(p, value,
				 "not a host's name; give at most 253 letters, digits, dots, "
				 "hyphens and underscores");
	p->settings->host = value;
	return 0;
}

static int read_output_file(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	if (!*value)
		return nt_refuse(p, value, "empty; give a path");
	*(const char **)field_of(p, option) = value;
	return 0;
}

static int read_socket_path(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	struct sockaddr_un addr;

	if (value[0] != '/')
		return nt_refuse(
			p, value,
			"not an absolute path; give it from the root, such as " NT_DEFAULT_SOCKET);
	if (strlen(value) >= sizeof(addr.sun_path))
		return nt_refuse(p, value, "too long for a socket; give at most 107 bytes");
	*(const char **)field_of(p, option) = value;
	return 0;
}

int nt_option_read(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	static int (*const read[])(struct nt_parse *, const struct nt_option *, const char *) = {
		[NT_FLAG] = read_flag,
		[NT_LEVEL] = read_level,
		[NT_CHOICE] = read_choice,
		[NT_ANSWER] = read_answer,
		[NT_ENUM] = read_enum,
		[NT_DURATION] = read_duration,
		[NT_COUNT] = read_count,
		[NT_PERCENT] = read_percent,
		[NT_PIDS] = read_pids,
		[NT_PORTS] = read_ports,
		[NT_COMM] = read_comm,
		[NT_CGROUP] = read_cgroup,
		[NT_CONTAINER] = read_container,
		[NT_POD] = read_pod,
		[NT_UNIT] = read_unit,
		[NT_NETNS] = read_netns,
		[NT_USER] = read_user,
		[NT_USER_GROUP] = read_user_group,
		[NT_BTF_FILE] = read_btf_file,
		[NT_KEY_FILE] = read_key_file,
		[NT_HOST] = read_host,
		[NT_OUTPUT_FILE] = read_output_file,
		[NT_SOCKET_PATH] = read_socket_path,
	};

	return read[option->kind](p, option, value);
}
