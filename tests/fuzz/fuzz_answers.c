// SPDX-License-Identifier: GPL-2.0
// links: userspace/protocol/answers.c userspace/protocol/json_scan.c userspace/base/numbers.c userspace/base/text.c
/* What comes over the daemon's socket to `nagletrace report` and `nagletrace top`: what is taken
 * for an answer is what json-c takes for one, and nothing of it does harm when it is written. */
#include <string.h>
#include <json-c/json.h>
#include "protocol/answers.h"
#include "fuzz.h"

#define MAX_BYTES 65536

static struct json_object *parsed(const char *line)
{
	struct json_tokener *tokener = json_tokener_new_ex(2 * NT_JSON_DEPTH);
	struct json_object *o;

	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	o = json_tokener_parse_ex(tokener, line, strlen(line) + 1);
	json_tokener_free(tokener);
	return o;
}

static void check_written(const char *written, size_t length)
{
	for (size_t i = 0; i < length; i++)
		FUZZ_CHECK((unsigned char)written[i] >= 0x20 && written[i] != 0x7f);
}

/* It means the same to json-c. */
static void check_json(const char *line, size_t length, struct json_object *o)
{
	char *written;
	size_t written_length;
	FILE *out = open_memstream(&written, &written_length);
	struct json_object *again;

	nt_write_json_escaped(out, line, length);
	fclose(out);
	check_written(written, written_length);
	again = parsed(written);
	FUZZ_CHECK(json_object_equal(o, again));
	json_object_put(again);
	free(written);
}

/* `text` says what json-c reads in it, but for halves of surrogate pairs: of those that follow each
 * other json-c makes another number of replacements. */
static void check_text(struct nt_json_value *text, struct json_object *o)
{
	struct json_object *value;
	char *written;
	size_t written_length;
	FILE *out;

	if (text->type != NT_JSON_STRING)
		return;
	FUZZ_CHECK(json_object_object_get_ex(o, "text", &value));
	nt_json_unescape(text);
	if (!memmem(text->at, text->length, "\xef\xbf\xbd", 3)) {
		FUZZ_CHECK(text->length == (size_t)json_object_get_string_len(value));
		FUZZ_CHECK(!memcmp(text->at, json_object_get_string(value), text->length));
	}
	out = open_memstream(&written, &written_length);
	nt_write_escaped(out, text->at, text->length);
	fclose(out);
	for (char *line, *rest = written; (line = strsep(&rest, "\n"));)
		check_written(line, strlen(line));
	free(written);
}

static void check_line(char *line)
{
	size_t length = strlen(line);
	bool escaped_key = strstr(line, "\\u") != NULL; /* json-c knows it as another's twin */
	struct json_object *o = parsed(line);
	char err[NT_ANSWER_ERR] = "";
	struct nt_answer answer;

	if (nt_answer_parse(line, length, NULL, 0, &answer, err, sizeof(err))) {
		fuzz_check_message(err);
	} else {
		FUZZ_CHECK(o);
		check_json(line, length, o);
		if (!escaped_key)
			check_text(&answer.text, o);
	}
	json_object_put(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_string(data, size, MAX_BYTES), *rest = copy, *line;

	if (!copy)
		return 0;
	while ((line = strsep(&rest, "\n")))
		check_line(line);
	free(copy);
	return 0;
}
