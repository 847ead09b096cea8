// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/siphash.c
// links: userspace/cmd/options.c userspace/cmd/options_table.c userspace/base/numbers.c userspace/base/text.c
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "unit.h"
#include "base/numbers.h"
#include "cmd/options.h"
#include "cmd/options_table.h"

#define MAX_ARGS    40
#define MAX_MESSAGE 200

/* Parses a line of words separated by spaces. */
static int parse(const char *line, enum nt_command *command, struct nt_settings *settings,
		 char err[NT_OPTION_ERROR_LEN])
{
	static char copy[1024];
	char *argv[MAX_ARGS] = {"nagletrace"}, *word, *rest = copy;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	while ((word = strsep(&rest, " ")) && argc < MAX_ARGS - 1)
		if (*word)
			argv[argc++] = word;
	argv[argc] = NULL;
	return nt_options_parse(argc, argv, command, settings, err, NT_OPTION_ERROR_LEN);
}

static struct nt_settings good(const char *line)
{
	struct nt_settings settings;
	enum nt_command command;
	char err[NT_OPTION_ERROR_LEN];

	if (parse(line, &command, &settings, err))
		fail_msg("%s: %s", line, err);
	return settings;
}

static enum nt_command command_of(const char *line)
{
	char err[NT_OPTION_ERROR_LEN];
	struct nt_settings settings;
	enum nt_command command;

	if (parse(line, &command, &settings, err))
		fail_msg("%s: %s", line, err);
	return command;
}

static void check_message(const char *what, const char *err)
{
	if (!*err || strlen(err) > MAX_MESSAGE)
		fail_msg("%s: a message of %zu bytes: %s", what, strlen(err), err);
	for (const char *c = err; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			fail_msg("%s: the message holds a control character", what);
}

/* Refused, in one line that holds each of the words. */
static void refused(const char *line, const char *option, const char *value, const char *remedy)
{
	struct nt_settings settings;
	enum nt_command command;
	char err[NT_OPTION_ERROR_LEN];

	if (parse(line, &command, &settings, err) != -EINVAL)
		fail_msg("%s: was not refused", line);
	if (!strstr(err, option) || !strstr(err, value) || !strstr(err, remedy))
		fail_msg("%s: \"%s\" lacks \"%s\", \"%s\" or \"%s\"", line, err, option, value,
			 remedy);
	check_message(line, err);
}

TEST(without_options_it_traces_everything)
{
	struct nt_settings o = good("");

	assert_int_equal(command_of(""), NT_CMD_TRACE);
	assert_int_equal(o.min_ns, 1000000);
	assert_int_equal(o.n_pids, 0);
	assert_int_equal(o.hooks, NT_HOOKS_AUTO);
	assert_int_equal(o.output, NT_OUTPUT_TEXT);
}

TEST(every_option_sets_what_it_says)
{
	struct nt_settings o =
		good("-p 1,2 -p 3 -P 80,443 -L 1 -D 65535 -4 -m 250us -i 5s --count 3 -d 2m -a "
		     "-U -w -v -v --hooks kprobe -j");

	assert_int_equal(o.n_pids, 3);
	assert_int_equal(o.pids[2], 3);
	assert_int_equal(o.ports.count, 2);
	assert_int_equal(o.ports.port[1], 443);
	assert_int_equal(o.local_ports.port[0], 1);
	assert_int_equal(o.remote_ports.port[0], 65535);
	assert_true(o.only_v4 && !o.only_v6);
	assert_int_equal(o.min_ns, 250000);
	assert_int_equal(o.interval_ns, 5000000000);
	assert_int_equal(o.count, 3);
	assert_int_equal(o.duration_ns, 120000000000);
	assert_true(o.all_holds && o.stacks && o.wide);
	assert_int_equal(o.verbose, 2);
	assert_int_equal(o.hooks, NT_HOOKS_KPROBE);
	assert_int_equal(o.output, NT_OUTPUT_JSON);
	o = good("--name nginx --ipv6 --quiet --output=json --btf /dev/null");
	assert_string_equal(o.name, "nginx");
	assert_true(o.only_v6 && o.quiet);
	assert_string_equal(o.btf, "/dev/null");
	o = good("--cgroup=/system.slice");
	assert_string_equal(o.cgroup, "/system.slice");
	assert_int_not_equal(good("--netns /proc/self/ns/net").netns, 0);
	assert_int_equal(good("--netns /proc/self/ns/net").netns,
			 good("--netns /proc/thread-self/ns/net").netns);
}

/* Writes a file of that mode, and gives its name in a directory of this test's own. */
static const char *key_file(const char *text, size_t length, mode_t mode)
{
	static char path[] = "/tmp/nagletrace-key-XXXXXX";
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), length);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	return path;
}

static void refused_key(const char *text, size_t length, mode_t mode, const char *why)
{
	const char *path = key_file(text, length, mode);
	char line[128];

	snprintf(line, sizeof(line), "--fleet-key %s", path);
	refused(line, "--fleet-key", "/tmp/nagletrace-key-", why);
	unlink(path);
}

TEST(a_fleet_key_is_read_from_a_file_that_others_may_not_use)
{
	static const char digits[] = "000102030405060708090a0b0c0d0e0f\n";
	static const char two[] = "000102030405060708090a0b0c0d0e0f\n"
				  "ffffffffffffffffffffffffffffffff 1970-01-02T00:00:00Z\n";
	static const char *const bad[] = {
		"000102030405060708090a0b0c0d0e0f\n\n",
		"000102030405060708090a0b0c0d0e0f\nffffffffffffffffffffffffffffffff\n",
		"000102030405060708090a0b0c0d0e0f\nffffffffffffffffffffffffffffffff tomorrow\n",
		"000102030405060708090a0b0c0d0e0f\nfffffffffffffffffffffffffffffffg 2030-01-01T00:00:00Z",
		"000102030405060708090a0b0c0d0e0f\nffffffffffffffffffffffffffffffff 2030-01-01T00:00:00Z\n+",
	};
	const char *path = key_file(digits, strlen(digits), 0640);
	struct nt_settings o;
	char line[128];

	snprintf(line, sizeof(line), "--fleet-key %s", path);
	o = good(line);
	assert_true(o.has_fleet_key);
	for (unsigned int i = 0; i < sizeof(o.fleet_keys[0]); i++)
		assert_int_equal(o.fleet_keys[0][i], i);
	unlink(path);
	assert_false(good("").has_fleet_key || o.next_fleet_key_ns);
	path = key_file(two, strlen(two), 0600);
	snprintf(line, sizeof(line), "--fleet-key %s", path);
	o = good(line);
	for (unsigned int i = 0; i < sizeof(o.fleet_keys[0]); i++)
		assert_true(o.fleet_keys[0][i] == i && o.fleet_keys[1][i] == 0xff);
	assert_int_equal(o.next_fleet_key_ns, 86400 * (int64_t)1000000000);
	unlink(path);
	refused_key(digits, strlen(digits), 0604, "chmod 600");
	refused_key(digits, strlen(digits), 0602, "chmod 600");
	refused_key(digits, 31, 0600, "openssl rand -hex 16");
	refused_key(digits, 0, 0600, "openssl rand -hex 16");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_key(bad[i], strlen(bad[i]), 0600, "the second line is no next key");
	refused("--fleet-key /no/such/file", "--fleet-key", "/no/such/file", "No such file");
	refused("--fleet-key /dev/zero", "--fleet-key", "/dev/zero", "not a file");
	refused("--fleet-key /", "--fleet-key", "/", "not a file");
}

TEST(a_host_has_the_name_of_a_host)
{
	char line[300] = "--host ";

	assert_string_equal(good("--host node-1.eu_west.example").host, "node-1.eu_west.example");
	assert_null(good("").host);
	refused("--host $(NODE_NAME)", "--host", "$(NODE_NAME)", "not a host's name");
	memset(line + strlen(line), 'a', 253);
	good(line);
	line[strlen(line)] = 'a';
	refused(line, "--host", "aaaa", "at most 253");
}

TEST(late_acks_are_for_programs)
{
	assert_true(good("--late-acks -o json").late_acks);
	refused("--late-acks", "--late-acks", "--output json", "");
}

TEST(short_options_can_be_joined)
{
	struct nt_settings o = good("-aUp123");

	assert_true(o.all_holds && o.stacks);
	assert_int_equal(o.pids[0], 123);
}

TEST(the_bcc_habit_works)
{
	struct nt_settings o = good("5 12");

	assert_int_equal(o.interval_ns, 5000000000);
	assert_int_equal(o.count, 12);
	o = good("-p 1 0.5 -a");
	assert_int_equal(o.interval_ns, 500000000);
	assert_int_equal(o.count, 0);
	assert_true(o.all_holds);
	refused("5 12 3", "", "3", "INTERVAL [COUNT]");
	refused("5x", "INTERVAL", "5x", "for example 5");
	refused("0", "INTERVAL", "0", "for example 5");
	refused("5 0", "COUNT", "0", "1 or more");
	refused("-i 5s 5", "INTERVAL", "5", "--interval");
	refused("-i 5s --count 2 5", "INTERVAL", "5", "one of them");
	refused("--count 2 5 3", "COUNT", "3", "one of them");
}

TEST(commands_are_told_from_words_that_are_none)
{
	assert_int_equal(command_of("check"), NT_CMD_CHECK);
	assert_int_equal(command_of("check --hooks tracepoint -j -v"), NT_CMD_CHECK);
	assert_int_equal(command_of("--help"), NT_CMD_HELP);
	assert_int_equal(command_of("-h"), NT_CMD_HELP);
	assert_int_equal(command_of("--version"), NT_CMD_VERSION);
	assert_int_equal(command_of("--json-schema"), NT_CMD_JSON_SCHEMA);
	assert_int_equal(command_of("-V"), NT_CMD_VERSION);
	assert_int_equal(command_of("version"), NT_CMD_VERSION);
	assert_int_equal(command_of("help"), NT_CMD_HELP);
	assert_int_equal(good("help").help_of, NT_CMD_TRACE);
	assert_int_equal(good("help top").help_of, NT_CMD_TOP);
	assert_int_equal(good("top --help").help_of, NT_CMD_TOP);
	refused("help chek", "help", "one command", "leave out");
	refused("version 2", "version", "no word", "leave out");
	refused("chek", "", "chek", "check");
	refused("check now", "", "now", "options only");
	refused("check -p 1", "--pid", "", "leave it out");
	refused("check -U", "--stacks", "", "leave it out");
}

TEST(pids_and_ports_are_taken_to_the_letter)
{
	assert_int_equal(good("-p 4194304").pids[0], 4194304);
	refused("-p 4194305", "--pid", "4194305", "4242");
	refused("-p 0", "--pid", "0", "4242");
	refused("-p 12x", "--pid", "12x", "4242");
	refused("-p -5", "--pid", "-5", "4242");
	refused("-p +5", "--pid", "+5", "4242");
	refused("-p 1,,2", "--pid", "1,,2", "4242");
	refused("-p 1,", "--pid", "1,", "4242");
	refused("-p 99999999999999999999999", "--pid", "9999999", "4242");
	assert_int_equal(good("-P 1").ports.port[0], 1);
	assert_int_equal(good("-P 65535").ports.port[0], 65535);
	refused("-P 65536", "--port", "65536", "1 to 65535");
	refused("-P 0", "--port", "0", "1 to 65535");
	refused("-L http", "--localport", "http", "1 to 65535");
	refused("-D 80,x", "--remoteport", "80,x", "1 to 65535");
}

/* "OPTION 1,2,…,count" */
static const char *list_of(const char *option, int count)
{
	static char line[512];
	int at = snprintf(line, sizeof(line), "%s ", option);

	for (int i = 1; i <= count; i++)
		at += snprintf(line + at, sizeof(line) - at, "%s%d", i > 1 ? "," : "", i);
	return line;
}

TEST(lists_are_full_at_64_processes_and_32_ports)
{
	assert_int_equal(good(list_of("-p", NT_MAX_PIDS)).n_pids, NT_MAX_PIDS);
	refused(list_of("-p", NT_MAX_PIDS + 1), "--pid", "1,2,3", "at most 64");
	assert_int_equal(good(list_of("-P", NT_MAX_PORTS)).ports.count, NT_MAX_PORTS);
	refused(list_of("-P", NT_MAX_PORTS + 1), "--port", "1,2,3", "at most 32");
	assert_int_equal(good(list_of("-L", NT_MAX_PORTS)).local_ports.count, NT_MAX_PORTS);
	refused(list_of("-L", NT_MAX_PORTS + 1), "--localport", "1,2,3", "at most 32");
	assert_int_equal(good(list_of("-D", NT_MAX_PORTS)).remote_ports.count, NT_MAX_PORTS);
	refused(list_of("-D", NT_MAX_PORTS + 1), "--remoteport", "1,2,3", "at most 32");
	assert_int_equal(good("-p 7 -p 7,7").n_pids, 1);
}

static void expect_ns(const char *text, uint64_t expected)
{
	uint64_t ns;

	assert_int_equal(nt_parse_duration(text, &ns), 0);
	assert_int_equal(ns, expected);
}

TEST(durations_take_a_unit)
{
	static const char *const malformed[] = {
		"0.1ns",  "1.05ns", "0.0000000001s", "0.000000000003h",
		"40",     "ms",     ".5s",           "5.s",
		"1.2.3s", "-5s",    "5 s",           "5sx",
		"5S"};
	uint64_t ns;

	expect_ns("1ns", 1);
	expect_ns("250us", 250000);
	expect_ns("40ms", 40000000);
	expect_ns("5s", 5000000000);
	expect_ns("2m", 120000000000);
	expect_ns("1h", 3600000000000);
	expect_ns("1.5s", 1500000000);
	expect_ns("0.25ms", 250000);
	expect_ns("0s", 0);
	expect_ns("1.0ns", 1);
	expect_ns("0.00000000001h", 36);
	for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
		if (nt_parse_duration(malformed[i], &ns) != -EINVAL)
			fail_msg("%s is taken, or refused for another reason", malformed[i]);
	assert_int_equal(nt_parse_duration("99999999999999999999s", &ns), -ERANGE);
	assert_int_equal(nt_parse_duration("18446744073s", &ns), -ERANGE);
	expect_ns("18446744072s", 18446744072000000000ULL);
}

TEST(malformed_durations_name_option_value_and_remedy)
{
	refused("-m 40", "--min", "40", "needs a unit");
	refused("-d abc", "--duration", "abc", "40ms");
	refused("-i 5x", "--interval", "5x", "40ms");
	refused("-i 0s", "--interval", "0s", "more than zero");
	refused("-d 0ms", "--duration", "0ms", "more than zero");
	refused("-d 99999999999h", "--duration", "99999999999h", "too long");
	refused("-d 18446744072s", "--duration", "18446744072s", "too long");
	assert_int_equal(good("--max-overhead 0.5").max_overhead_ppm, 5000);
	assert_int_equal(good("--max-overhead 100").max_overhead_ppm, 1000000);
	assert_int_equal(good("daemon --max-overhead 0.0001").max_overhead_ppm, 1);
	assert_int_equal(good("-m 0ms").min_ns, 0);
}

TEST(options_that_contradict_each_other_are_refused)
{
	refused("-p 1 -n x", "--pid", "--name", "one of them");
	refused("-p 1 -c /x", "--pid", "--cgroup", "one of them");
	refused("-n x -c /x", "--name", "--cgroup", "one of them");
	refused("-4 -6", "--ipv4", "--ipv6", "leave both out");
	refused("-q -v", "--quiet", "--verbose", "one of them");
	refused("-j -o text", "--json", "--output text", "one of them");
	assert_int_equal(good("-j -o json").output, NT_OUTPUT_JSON);
	refused("--count 3", "--count", "3", "--interval");
	refused("-m 1ms -m 2ms", "--min", "2ms", "once");
	assert_int_equal(good("-m 2ms -m 2ms").min_ns, 2000000);
}

TEST(other_values_are_refused)
{
	refused("-o xml", "--output", "xml", "json");
	refused("--max-overhead 0", "--max-overhead", "0", "more than zero");
	refused("--max-overhead 1%", "--max-overhead", "1%", "percent");
	refused("--max-overhead 100.1", "--max-overhead", "100.1", "percent");
	refused("--max-overhead 0.00001", "--max-overhead", "0.00001", "0.0001");
	refused("--max-overhead -1", "--max-overhead", "-1", "percent");
	refused("--hooks fentry", "--hooks", "fentry", "tracepoint");
	refused("-n 0123456789abcdef", "--name", "0123456789abcdef", "15");
	assert_string_equal(good("-n 0123456789abcde").name, "0123456789abcde");
	refused("-c system.slice", "--cgroup", "system.slice", "/");
	refused("--container web;reboot", "--container", "web;reboot", "docker ps");
	refused("--container -f", "--container", "-f", "docker ps");
	refused("--pod web-1", "--pod", "web-1", "kubectl");
	refused("--unit nginx", "--unit", "nginx", "nginx.service");
	refused("--unit /a/b.service", "--unit", "/a/b.service", "nginx.service");
	refused("--unit a.service -c /x", "--cgroup", "--unit", "one of them");
	refused("--netns x", "--netns", "x", "/run/netns/x");
	refused("--netns /etc/passwd", "--netns", "/etc/passwd", "not a network namespace");
	refused("--netns /no/such", "--netns", "/no/such", "no such process or file");
	refused("--netns 4194305", "--netns", "4194305", "/run/netns/x");
	refused("--btf /no/such/file", "--btf", "/no/such/file", "No such file");
	refused("--btf /", "--btf", "/", "Is a directory");
	refused("-i 1s --count 0", "--count", "0", "1 or more");
}

TEST(unknown_options_and_abbreviations_are_refused)
{
	refused("--foo", "--foo", "", "--help");
	refused("--timelines", "--timelines", "", "--help");
	refused("-x", "-x", "", "--help");
	refused("-\xc3", "-\\xc3", "", "--help");
	refused("-ax", "-x", "", "--help");
	refused("--inter 5s", "--inter", "", "--help");
	refused("--pi", "--pi", "", "no such option");
	refused("--wid=3", "--wid", "", "no such option");
	refused("--pid", "--pid", "", "needs a value");
	refused("-p", "-p", "", "needs a value");
	refused("--json=yes", "--json", "", "takes no value");
}

TEST(a_value_with_control_characters_is_shown_escaped)
{
	refused("-p 1\n2", "--pid", "1\\x0a2", "4242");
	refused("-o \033[2J", "--output", "\\x1b[2J", "json");
	refused("\033x", "", "\\x1bx", "check");
	refused("--f\noo", "--f\\x0aoo", "", "--help");
}

/* Each option that takes a value, each flag and each word, with a value as bad as it can be. */
TEST(no_message_is_longer_than_200_bytes)
{
	char bad[301], line[400], err[NT_OPTION_ERROR_LEN];
	struct nt_settings settings;
	enum nt_command command;

	memset(bad, '\001', sizeof(bad) - 1);
	bad[sizeof(bad) - 1] = '\0';
	refused(bad, "", "\\x01", "check");
	snprintf(line, sizeof(line), "--%s", bad);
	refused(line, "--\\x01", "", "--help");
	snprintf(line, sizeof(line), "5 %s", bad);
	refused(line, "COUNT", "\\x01", "1 or more");
	for (const struct nt_option *row = nt_options; row->help; row++) {
		if (!row->name || row->kind == NT_OUTPUT_FILE) /* a file may be called so */
			continue;
		snprintf(line, sizeof(line), "--%s=%s", row->name, bad);
		if (parse(line, &command, &settings, err) != -EINVAL)
			fail_msg("--%s took control characters", row->name);
		check_message(row->name, err);
	}
	memset(bad, '0', sizeof(bad) - 1);
	snprintf(line, sizeof(line), "--count %s3", bad);
	refused(line, "--count", "3", "--interval");
}

TEST(a_long_value_is_cut_after_24_bytes)
{
	refused("-p 1234567890123456789012345", "--pid", "123456789012345678901234…:", "4242");
	refused("-p 123456789012345678901234", "--pid", "123456789012345678901234:", "4242");
}

TEST(an_empty_value_is_shown)
{
	refused("--name=", "--name", "\"\"", "give a command name");
	refused("--pid=", "--pid", "\"\"", "4242");
	refused("--port=", "--port", "\"\"", "1 to 65535");
	refused("--min=", "--min", "\"\"", "40ms");
	refused("--cgroup=", "--cgroup", "\"\"", "from the root");
	refused("--btf=", "--btf", "\"\"", "No such file");
	refused("--user=", "--user", "\"\"", "getent passwd");
	refused("--output-file=", "--output-file", "\"\"", "give a path");
	refused("--fail-on-stall=", "--fail-on-stall", "\"\"", "1 or more");
}

/* argv does not outlive parse(), but its words do. */
TEST(two_dashes_stand_before_a_command_to_trace)
{
	struct nt_settings o = good("-a 5 --user root -- make -j 2 -- check");

	assert_true(o.all_holds);
	assert_int_equal(o.interval_ns, 5000000000);
	assert_string_equal(o.user, "root");
	assert_non_null(o.workload);
	assert_int_equal(command_of("-- check"), NT_CMD_TRACE);
	assert_null(good("-n -- 5").workload);
	assert_string_equal(good("-n -- 5").name, "--");
	assert_non_null(good("-j --output-file /x -- true").workload);
	assert_string_equal(good("-j --output-file /x -- true").output_file, "/x");
	refused("--", "--", "needs a command", "nagletrace -- ");
	refused("daemon -- true", "--", "`daemon`", "leave it out");
	refused("-p 1 -- true", "--pid", "behind --", "leave one out");
	refused("-n x -- true", "--name", "behind --", "leave one out");
	refused("-d 5s -- true", "--duration", "behind --", "leave one out");
	refused("5 3 -- true", "COUNT", "3", "leave it out");
	refused("-j -- true", "--output json", "stdout", "--output-file");
	refused("--user root", "--user", "root", "behind --");
	refused("--user no-such-user -- true", "--user", "no-such-user", "getent passwd");
}

TEST(the_number_of_stalls_that_fail_is_1_or_what_stands_behind_the_equals_sign)
{
	assert_int_equal(good("").fail_on_stalls, 0);
	assert_int_equal(good("--fail-on-stall").fail_on_stalls, 1);
	assert_int_equal(good("--fail-on-stall=7 -- true").fail_on_stalls, 7);
	assert_int_equal(good("--fail-on-stall 5").interval_ns, 5000000000);
	refused("--fail-on-stall=0", "--fail-on-stall", "0", "1 or more");
	refused("--fail-on-stall --fail-on-stall=7", "--fail-on-stall", "7", "give it once");
	refused("--fail-on-stall=7 --fail-on-stall", "--fail-on-stall", "\"\"", "give it once");
	refused("daemon --fail-on-stall", "--fail-on-stall", "`daemon`", "leave it out");
}

TEST(daemon_and_report_take_their_own_options)
{
	struct nt_settings o = good("daemon");

	assert_int_equal(command_of("daemon"), NT_CMD_DAEMON);
	assert_string_equal(o.socket, "/run/nagletrace/nagletrace.sock");
	assert_null(o.group);
	assert_int_equal(o.window_ns, 600 * 1000000000ULL);
	assert_int_equal(o.max_series, 1000);
	assert_int_equal(o.max_connections, 1024);
	assert_int_equal(o.max_late_acks, 100);
	assert_int_equal(good("--late-acks -o json").max_late_acks, 0);
	assert_false(o.by_cgroup);
	o = good("daemon --socket /x/y --group root --window 1h --max-series 10 --max-connections "
		 "20 --max-late-acks 0 --by-cgroup -n nginx");
	assert_string_equal(o.socket, "/x/y");
	assert_string_equal(o.group, "root");
	assert_int_equal(o.window_ns, 3600 * 1000000000ULL);
	assert_int_equal(o.max_series, 10);
	assert_int_equal(o.max_connections, 20);
	assert_int_equal(o.max_late_acks, 0);
	assert_true(o.by_cgroup);
	assert_false(o.standby);
	assert_int_equal(o.quiet_ns, 300 * 1000000000ULL);
	o = good("daemon --standby --standby-after 2m --stacks -c /x");
	assert_true(o.standby);
	assert_int_equal(o.quiet_ns, 120 * 1000000000ULL);
	o = good("-f report -w --socket /x");
	assert_int_equal(command_of("-f report -w --socket /x"), NT_CMD_REPORT);
	assert_true(o.follow);
	refused("daemon now", "", "now", "`daemon` takes options only");
	refused("report 5", "", "5", "`report` takes options only");
	refused("daemon --socket run/x", "--socket", "run/x", "from the root");
	refused("daemon --group no-such-group", "--group", "no-such-group", "getent");
	refused("daemon --max-series 0", "--max-series", "0", "from 1 to 100000");
	refused("daemon --max-connections 100001", "--max-connections", "100001",
		"from 1 to 100000");
	refused("daemon --max-late-acks 4001", "--max-late-acks", "4001", "from 0 to 4000");
	refused("daemon --standby --standby-after 999ms", "--standby-after", "999ms", "1s or more");
	refused("daemon --standby --max-overhead 1", "--standby", "--max-overhead",
		"leave one out");
	refused("daemon --standby-after 1m", "--standby-after", "1m", "give both");
	refused("daemon --standby -p 1", "--pid", "`daemon`", "leave it out");
	refused("daemon --window 0s", "--window", "0s", "more than zero");
	refused("--socket /x", "--socket", "goes with `daemon`, `report`, `top` only",
		"leave it out");
	refused("--follow", "--follow", "goes with `report` only", "leave it out");
}

TEST(the_examples_of_each_command_parse_as_that_command)
{
	for (const struct nt_command_row *row = nt_commands; row->name; row++) {
		for (size_t i = 0; i < 2; i++) {
			const char *line = strstr(row->examples[i], "nagletrace ");

			assert_non_null(line);
			assert_int_equal(command_of(line + strlen("nagletrace ")), row->command);
		}
	}
}

TEST(top_traces_by_itself_when_told_what_to_trace)
{
	assert_int_equal(command_of("top"), NT_CMD_TOP);
	assert_false(good("top -i 200ms -d 5s").traces_itself);
	assert_false(good("top --socket /x").traces_itself);
	assert_true(good("top -p 1").traces_itself);
	assert_true(good("top --hooks kprobe").traces_itself);
	assert_true(good("top -U").traces_itself);
	assert_false(good("-p 1").traces_itself);
	refused("top --socket /x -p 1", "--socket", "--pid", "traces by itself");
	refused("top -i 99ms", "--interval", "99ms", "100ms");
	assert_int_equal(good("-i 99ms").interval_ns, 99000000);
	refused("top 5", "", "5", "`top` takes options only");
}

TEST(sample_takes_interval_and_count_and_what_a_look_can_choose_by)
{
	struct nt_settings o = good("sample 5 12 -j");

	assert_int_equal(command_of("sample"), NT_CMD_SAMPLE);
	assert_int_equal(good("sample").interval_ns, 0);
	assert_int_equal(o.interval_ns, 5000000000);
	assert_int_equal(o.count, 12);
	assert_int_equal(o.output, NT_OUTPUT_JSON);
	refused("sample -- 5", "--", "`sample`", "leave it out");
	good("sample -p 1 -P 80 -L 1 -D 2 -4 -w -a -q -i 5s --count 2 -d 1m");
	good("sample -c / --netns /proc/self/ns/net -6 -v 1");
	refused("sample now", "INTERVAL", "now", "for example 5");
	refused("sample 0", "INTERVAL", "0", "for example 5");
	refused("sample 1 0", "COUNT", "0", "1 or more");
	refused("sample 1 2 3", "", "3", "INTERVAL [COUNT]");
	refused("sample 1 2 3 4", "", "3", "INTERVAL [COUNT]");
	refused("sample --count 2", "--count", "2", "--interval");
	refused("sample -i 1s 5", "INTERVAL", "5", "--interval");
	refused("sample -m 5ms", "--min", "`sample`", "leave it out");
	refused("sample --hooks kprobe", "--hooks", "`sample`", "leave it out");
	refused("sample -U", "--stacks", "`sample`", "leave it out");
	refused("sample --timeline", "--timeline", "`sample`", "leave it out");
	refused("sample --max-overhead 1", "--max-overhead", "`sample`", "leave it out");
	refused("sample --socket /x", "--socket", "`sample`", "leave it out");
	refused("check 1 2", "", "1", "options only");
}

TEST(fix_is_told_what_to_set_and_whose)
{
	struct nt_settings o = good("fix -p 1 --nodelay");

	assert_int_equal(command_of("fix -p 1 --nodelay"), NT_CMD_FIX);
	assert_true(o.nodelay && !o.quickack && !o.yes && !o.all);
	assert_int_equal(o.for_ns, 10000000000);
	o = good("fix -n nginx --quickack --for 30s -y --all -P 80 --netns /proc/self/ns/net -j");
	assert_true(o.quickack && !o.nodelay && o.yes && o.all);
	assert_int_equal(o.for_ns, 30000000000);
	good("fix -c / --nodelay -U -w -4 -m 5ms --hooks kprobe -v");
	refused("fix -p 1", "fix", "choose --nodelay", "--quickack");
	refused("fix --nodelay", "fix", "choose processes", "--pid");
	refused("fix -p 1 --nodelay --quickack", "--nodelay", "--quickack", "one of them");
	refused("fix -p 1 --nodelay --for 0s", "--for", "0s", "more than zero");
	refused("fix -p 1 --nodelay --for 10", "--for", "10", "unit");
	refused("fix -p 1 --nodelay -d 5s", "--duration", "`fix`", "leave it out");
	refused("fix 5", "", "5", "`fix` takes options only");
	refused("-p 1 --nodelay", "--nodelay", "goes with `fix` only", "leave it out");
	refused("daemon --yes", "--yes", "`daemon`", "leave it out");
	o = good("fix --unit x.service --quickack-limit 8ms --keep -q");
	assert_true(o.keep && !o.pin && !o.undo);
	assert_int_equal(o.quickack_limit_ns, 8000000);
	assert_true(good("fix -c /x --nodelay --pin").pin);
	assert_true(good("fix -c /x --undo").undo);
	good("fix -c /x");
	refused("fix -p 1 --nodelay --keep", "--keep", "--cgroup", "give");
	refused("fix -c /x --keep", "--keep", "--nodelay", "--quickack-limit");
	refused("fix -c /x --keep --pin --nodelay", "--keep", "--pin", "one of them");
	refused("fix -c /x --undo --nodelay", "--undo", "both", "leave out");
	refused("fix -c /x --nodelay --keep -P 80", "--port", "--keep", "leave it out");
	refused("fix -c /x --quickack --keep", "--keep", "--nodelay", "--quickack-limit");
	refused("fix -c /x --quickack-limit 8ms", "--quickack-limit", "--keep", "--pin");
	refused("fix -c /x -j", "--json", "list", "leave it out");
}

TEST(calls_do_not_know_of_each_other)
{
	good("-p 5 -a 3");
	assert_int_equal(good("-p 6").n_pids, 1);
	assert_false(good("").all_holds);
}

TEST(help_fits_80_columns_and_names_every_option)
{
	char option[48];
	char *text = NULL, *line, *rest;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	nt_options_help(out, NT_CMD_TRACE);
	fclose(out);
	for (const struct nt_option *row = nt_options; row->help; row++) {
		if (!row->name)
			continue;
		if (row->letter)
			snprintf(option, sizeof(option), "  -%c, --%s ", row->letter, row->name);
		else
			snprintf(option, sizeof(option), "      --%s%c", row->name,
				 nt_may_lack_value(row) ? '[' : ' ');
		if (!strstr(text, option))
			fail_msg("help does not name \"%s\"", option);
	}
	assert_null(strstr(text, "(null)"));
	rest = text;
	while ((line = strsep(&rest, "\n")))
		if (strlen(line) > 80)
			fail_msg("more than 80 columns: %s", line);
	free(text);
}

UNIT_MAIN()
