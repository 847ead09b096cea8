// SPDX-License-Identifier: GPL-2.0
// links: userspace/stall.c userspace/owners.c userspace/processes.c userspace/json.c
// links: userspace/json_parts.c userspace/text_report.c userspace/text.c userspace/words.c
// links: userspace/advice.c userspace/aggregate.c userspace/series.c userspace/window.c
// links: userspace/counts.c userspace/hooks.c userspace/kernel.c userspace/stacks.c
// links: userspace/symbols.c userspace/unwind.c userspace/tracer.c userspace/numbers.c
// links: userspace/json_stall.c
/*
 * A record of any bytes, as the ring buffer might hand it out: decoded, counted, and written as
 * JSON that a parser takes and as text without a control character.
 */
#include <string.h>
#include <json-c/json.h>
#include "fuzz.h"
#include "report.h"
#include "series.h"
#include "window.h"

static struct nt_options opts;
static struct nt_targets targets = {.opts = &opts};
static struct nt_owners owners;
static struct nt_window window;
static struct nt_series_set series;

static void check_json(const char *line, size_t length)
{
	struct json_tokener *tokener = json_tokener_new();
	struct json_object *o;

	FUZZ_CHECK(length && line[length - 1] == '\n' && !memchr(line, '\n', length - 1));
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	o = json_tokener_parse_ex(tokener, line, (int)length - 1);
	if (!o && json_tokener_get_error(tokener) == json_tokener_continue)
		o = json_tokener_parse_ex(tokener, "", 1);
	FUZZ_CHECK(json_object_is_type(o, json_type_object));
	json_object_put(o);
	json_tokener_free(tokener);
}

static void check_text(const char *text, size_t length)
{
	FUZZ_CHECK(length && text[length - 1] == '\n');
	for (size_t i = 0; i < length; i++)
		FUZZ_CHECK((unsigned char)text[i] >= 0x20 || text[i] == '\n');
}

static void write_both(const struct nt_stall *stall)
{
	char *line = NULL;
	size_t length;
	FILE *out = open_memstream(&line, &length);

	FUZZ_CHECK(out && !nt_json_stall(out, stall, NULL));
	fclose(out);
	check_json(line, length);
	free(line);
	out = open_memstream(&line, &length);
	FUZZ_CHECK(out && !nt_text_stall(out, &opts, stall));
	fclose(out);
	check_text(line, length);
	free(line);
}

static void set_up(void)
{
	struct nt_counts counts = {};
	static bool done;

	if (done)
		return;
	done = true;
	nt_window_init(&window, 64, 0, &counts);
	nt_series_init(&series, 64, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nt_record record = {};
	struct nt_stall stall;

	set_up();
	if (size < 1)
		return 0;
	opts.wide = data[0] & 1;
	memcpy(&record, data + 1, size - 1 < sizeof(record) ? size - 1 : sizeof(record));
	if (!nt_stall_from_record(&stall, &record, &opts, &targets, &owners))
		return 0;
	write_both(&stall);
	nt_window_add(&window, &stall);
	nt_series_add(&series, &stall, record.time_ns);
	FUZZ_CHECK(nt_series_count(&series) <= 64);
	return 0;
}
