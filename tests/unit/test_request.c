// SPDX-License-Identifier: GPL-2.0
// links: userspace/protocol/request.c userspace/base/text.c
#include <errno.h>
#include <string.h>
#include "unit.h"
#include "protocol/request.h"

static struct nt_request good(const char *line)
{
	struct nt_request request;
	char err[NT_REQUEST_TEXT] = "";

	if (nt_request_parse(line, strlen(line), &request, err, sizeof(err)))
		fail_msg("%s: %s", line, err);
	return request;
}

static void refused_bytes(const char *line, size_t length, const char *word)
{
	struct nt_request request;
	char err[NT_REQUEST_TEXT] = "";

	assert_int_equal(nt_request_parse(line, length, &request, err, sizeof(err)), -EINVAL);
	if (!strstr(err, word))
		fail_msg("%s: \"%s\" lacks \"%s\"", line, err, word);
	for (const char *c = err; *c; c++)
		assert_in_range((unsigned char)*c, 0x20, 0xff);
}

static void refused(const char *line, const char *word)
{
	refused_bytes(line, strlen(line), word);
}

TEST(each_request_is_known)
{
	assert_int_equal(good("{\"request\":\"snapshot\"}").kind, NT_REQUEST_SNAPSHOT);
	assert_int_equal(good("{\"request\":\"snapshot\"}").top, 0);
	assert_false(good("{\"request\":\"snapshot\"}").last);
	assert_true(good("{\"request\":\"snapshot\",\"last\":true}").last);
	assert_int_equal(good(" {\"top\": 7, \"request\":\"snapshot\", \"protocol\":1} ").top, 7);
	assert_int_equal(good("{\"request\":\"report\"}").format, NT_FORMAT_JSON);
	assert_int_equal(good("{\"request\":\"report\",\"format\":\"text\"}").format,
			 NT_FORMAT_TEXT);
	assert_int_equal(good("{\"request\":\"stream\",\"format\":\"wide\"}").kind,
			 NT_REQUEST_STREAM);
	assert_int_equal(good("{\"request\":\"health\"}\r").kind, NT_REQUEST_HEALTH);
}

TEST(what_is_none_is_refused_with_the_remedy)
{
	refused("", "not JSON");
	refused("snapshot", "not JSON");
	refused("{\"request\":\"health\"", "not JSON");
	refused("{\"request\":\"health\"}}", "not JSON");
	refused("{\"request\":\"health\"} {\"request\":\"health\"}", "not JSON");
	refused("[]", "not a JSON object");
	refused("null", "not JSON");
	refused("3", "not a JSON object");
	refused("\"health\"", "not a JSON object");
	refused("{}", "no request in it");
	refused("{\"request\":\"heal\"}", "give snapshot, report, stream or health");
	refused("{\"request\":7}", "give snapshot");
	refused("{\"request\":null}", "give snapshot");
	refused("{\"request\":{\"request\":1}}", "give snapshot");
	refused("{\"request\":\"report\",\"format\":\"xml\"}", "json, text or wide");
	refused("{\"request\":\"report\",\"format\":[]}", "json, text or wide");
	refused("{\"request\":\"snapshot\",\"top\":1001}", "from 0 to 1000");
	refused("{\"request\":\"snapshot\",\"last\":1}", "neither true nor false");
	refused("{\"request\":\"snapshot\",\"top\":-1}", "from 0 to 1000");
	refused("{\"request\":\"snapshot\",\"top\":\"7\"}", "from 0 to 1000");
	refused("{\"request\":\"snapshot\",\"top\":99999999999999999999}", "from 0 to 1000");
	refused("{\"request\":\"health\",\"protocol\":2}", "from 1 to 1");
	refused("{\"request\":\"health\",\"\\u001b[2J\":1}", "\\x1b[2J");
	refused("[[[[[[[[[[]]]]]]]]]]", "not JSON");
	refused_bytes("{\"request\":\"health\"}\0", 21, "not JSON");
	refused_bytes("{\"request\":\0\"health\"}", 21, "not JSON");
	refused_bytes("\xff\xfe{}", 4, "not JSON");
}

UNIT_MAIN()
