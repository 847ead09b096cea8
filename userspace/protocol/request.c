// SPDX-License-Identifier: GPL-2.0
#include "protocol/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>
#include "base/text.h"

#define MAX_DEPTH 4

static const char *const kinds[] = {
	[NT_REQUEST_SNAPSHOT] = "snapshot",
	[NT_REQUEST_REPORT] = "report",
	[NT_REQUEST_STREAM] = "stream",
	[NT_REQUEST_HEALTH] = "health",
};

static const char *const formats[NT_FORMATS] = {"json", "text", "wide"};

/* Formats the error, with the value short and harmless. */
static int refuse(char *err, size_t size, const char *format, const char *value)
{
	char shown[NT_ESCAPED_LEN(24)];

	nt_escape(value, strnlen(value, 24), shown, sizeof(shown));
	snprintf(err, size, format, shown);
	return -EINVAL;
}

/* Takes the place of a word in its list. */
static int take_word(struct json_object *value, const char *const *words, size_t n,
		     unsigned int *place, const char *refusal, char *err, size_t size)
{
	const char *word = json_object_get_string(value);

	for (size_t i = 0; i < n; i++) {
		if (words[i] && json_object_is_type(value, json_type_string) &&
		    !strcmp(word, words[i])) {
			*place = i;
			return 0;
		}
	}
	return refuse(err, size, refusal, word ? word : "null");
}

static int take_number(struct json_object *value, const char *key, int64_t least, int64_t most,
		       int64_t *number, char *err, size_t size)
{
	*number = json_object_get_int64(value);
	if (json_object_is_type(value, json_type_int) && *number >= least && *number <= most)
		return 0;
	snprintf(err, size, "%s: not in range; give a number from %lld to %lld", key,
		 (long long)least, (long long)most);
	return -EINVAL;
}

static int take_flag(struct json_object *value, const char *key, bool *flag, char *err, size_t size)
{
	*flag = json_object_get_boolean(value);
	if (json_object_is_type(value, json_type_boolean))
		return 0;
	snprintf(err, size, "%s: neither true nor false", key);
	return -EINVAL;
}

static int take(struct nt_request *request, const char *key, struct json_object *value, char *err,
		size_t size)
{
	int64_t number;
	int bad;

	if (!strcmp(key, "request"))
		return take_word(value, kinds, sizeof(kinds) / sizeof(kinds[0]), &request->kind,
				 "request %s: not known; give snapshot, report, stream or health",
				 err, size);
	if (!strcmp(key, "format"))
		return take_word(value, formats, NT_FORMATS, &request->format,
				 "format %s: not known; give json, text or wide", err, size);
	if (!strcmp(key, "protocol"))
		return take_number(value, key, NT_PROTOCOL, NT_PROTOCOL, &number, err, size);
	if (!strcmp(key, "last"))
		return take_flag(value, key, &request->last, err, size);
	if (strcmp(key, "top"))
		return refuse(err, size,
			      "key %s: not known; a request has request, protocol, format, top and "
			      "last",
			      key);
	bad = take_number(value, key, 0, NT_REQUEST_TOP, &number, err, size);
	if (!bad)
		request->top = number;
	return bad;
}

static int take_object(struct nt_request *request, struct json_object *o, char *err, size_t size)
{
	if (!json_object_is_type(o, json_type_object)) {
		snprintf(err, size, "not a JSON object; give for example {\"request\":\"health\"}");
		return -EINVAL;
	}
	json_object_object_foreach(o, key, value)
	{
		int bad = take(request, key, value, err, size);

		if (bad)
			return bad;
	}
	if (request->kind)
		return 0;
	snprintf(err, size, "no request in it; give for example {\"request\":\"health\"}");
	return -EINVAL;
}

int nt_request_parse(const char *line, size_t length, struct nt_request *request, char *err,
		     size_t err_size)
{
	struct json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH);
	struct json_object *o = NULL;
	int bad = -EINVAL;

	memset(request, 0, sizeof(*request));
	if (tokener && !memchr(line, '\0', length)) {
		json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
		/* the NUL behind the line shows the tokener where a last number ends */
		o = json_tokener_parse_ex(tokener, line, length + 1);
	}
	if (o && json_tokener_get_error(tokener) == json_tokener_success)
		bad = take_object(request, o, err, err_size);
	else
		snprintf(err, err_size, "not JSON; give one object a line");
	json_object_put(o);
	if (tokener)
		json_tokener_free(tokener);
	return bad;
}
