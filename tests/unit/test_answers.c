// SPDX-License-Identifier: GPL-2.0
// links: userspace/protocol/answers.c userspace/protocol/json_scan.c userspace/base/numbers.c userspace/base/text.c
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "unit.h"
#include "protocol/answers.h"
#include "base/clock.h"

static struct nt_answers answers;
static int daemon_fd, client_fd;

static int set_up(void **state)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return -1;
	client_fd = fds[0];
	daemon_fd = fds[1];
	nt_answers_open(&answers, client_fd);
	return 0;
}

static int tear_down(void **state)
{
	nt_answers_close(&answers);
	close(client_fd);
	if (daemon_fd >= 0)
		close(daemon_fd);
	return 0;
}

static void say(const char *text)
{
	assert_int_equal(write(daemon_fd, text, strlen(text)), strlen(text));
}

static void hang_up(void)
{
	close(daemon_fd);
	daemon_fd = -1;
}

static uint64_t in_ms(unsigned int ms)
{
	return nt_now_ns() + ms * MS;
}

static void expect_line(const char *wanted)
{
	char *line;
	size_t length;

	assert_int_equal(nt_answers_wait(&answers, in_ms(10000), &line, &length), 0);
	assert_string_equal(line, wanted);
	assert_int_equal(length, strlen(wanted));
}

static int wait_in_vain(uint64_t deadline_ns)
{
	char *line;
	size_t length;
	int err = nt_answers_wait(&answers, deadline_ns, &line, &length);

	assert_int_not_equal(err, 0);
	return err;
}

TEST(lines_come_whole_however_they_are_cut)
{
	say("one\ntw");
	expect_line("one");
	assert_int_equal(wait_in_vain(in_ms(1)), -EAGAIN);
	say("o\n\nfour\nfi");
	expect_line("two");
	expect_line("");
	expect_line("four");
	say("ve");
	say("\n");
	expect_line("five");
}

TEST(what_lies_there_whole_is_an_answer_however_late_somebody_looks)
{
	char *line;
	size_t length;

	say("one\n");
	assert_int_equal(nt_answers_wait(&answers, 1, &line, &length), 0);
	assert_string_equal(line, "one");
	say("tw");
	assert_int_equal(wait_in_vain(1), -EAGAIN);
}

TEST(who_ends_has_said_what_came_before)
{
	say("one\nhalf");
	hang_up();
	expect_line("one");
	assert_int_equal(wait_in_vain(UINT64_MAX), -ENODATA);
}

/* A unix socket that is closed with something unread resets the connection, once it is read. */
TEST(who_ends_without_reading_has_said_it_too)
{
	assert_int_equal(write(client_fd, "a request\n", 10), 10);
	say("no\n");
	hang_up();
	expect_line("no");
	assert_int_equal(wait_in_vain(UINT64_MAX), -ENODATA);
}

/* Says x as long as somebody reads. */
static void *go_on(void *context)
{
	char *chunk = malloc(1 << 20);

	memset(chunk, 'x', 1 << 20);
	while (send(daemon_fd, chunk, 1 << 20, MSG_NOSIGNAL) > 0)
		;
	free(chunk);
	return NULL;
}

TEST(a_line_has_a_limit)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, go_on, NULL), 0);
	assert_int_equal(wait_in_vain(in_ms(60000)), -EMSGSIZE);
	assert_in_range(answers.room, NT_ANSWER_MAX, NT_ANSWER_MAX + (1 << 20));
	shutdown(client_fd, SHUT_RDWR);
	pthread_join(thread, NULL);
}

static void expect_error(const char *text, const char *wanted)
{
	struct nt_answer answer;
	char err[NT_ANSWER_ERR], *line = strdup(text);

	assert_int_equal(nt_answer_parse(line, strlen(line), NULL, 0, &answer, err, sizeof(err)),
			 -EINVAL);
	assert_string_equal(err, wanted);
	free(line);
}

TEST(what_is_no_answer_is_told)
{
	static const char no_daemon[] = "what answers is no nagletrace daemon; give its --socket";

	expect_error("", no_daemon);
	expect_error("{\"type\":null}", no_daemon);
	expect_error("{\"type\":\"text\"}", no_daemon);
	expect_error("{\"type\":\"text\",\"protocol\":\"1\"}", no_daemon);
	expect_error("{\"type\":\"error\",\"error\":null}", no_daemon);
	expect_error("{\"type\":\"text\",\"protocol\":2}",
		     "the daemon speaks protocol 2, this nagletrace 1; "
		     "use the nagletrace that came with it");
	expect_error("{\"type\":\"error\",\"error\":\"a \\\\x1b \\u001b[2J\\n\"}",
		     "the daemon says: a \\x1b \\x1b[2J\\x0a");
}

TEST(what_is_one_is_taken)
{
	char line[] =
		"{\"type\":\"text\",\"protocol\":1,\"text\":\"a\\nb\",\"others\":2,\"more\":[1]}";
	struct nt_answer answer;
	char err[NT_ANSWER_ERR];

	assert_int_equal(nt_answer_parse(line, strlen(line), NULL, 0, &answer, err, sizeof(err)),
			 0);
	assert_true(nt_json_is(&answer.type, "text"));
	assert_int_equal(answer.stalls.type, NT_JSON_ABSENT);
	assert_int_equal(answer.others.type, NT_JSON_NUMBER);
	nt_json_unescape(&answer.text);
	assert_string_equal(answer.text.at, "a\nb");
}

/* Each line that a stream of JSON has. */
TEST(records_do_not_name_the_protocol)
{
	static const char *const types[] = {"stall", "hold", "late_ack", "report"};
	char line[64], err[NT_ANSWER_ERR];
	struct nt_answer answer;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		snprintf(line, sizeof(line), "{\"type\":\"%s\"}", types[i]);
		assert_int_equal(
			nt_answer_parse(line, strlen(line), NULL, 0, &answer, err, sizeof(err)), 0);
	}
}

UNIT_MAIN_WITH(set_up, tear_down)
