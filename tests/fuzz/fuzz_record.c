// SPDX-License-Identifier: GPL-2.0
// links: userspace/output/slow.c
// links: userspace/capture/origin.c userspace/base/siphash.c
// links: userspace/capture/behind.c userspace/capture/stall.c userspace/capture/owners.c userspace/capture/owner_list.c userspace/capture/asked.c
// links: userspace/terms/container.c userspace/base/each_process.c userspace/capture/processes.c userspace/capture/find_cgroup.c
// links: userspace/capture/standby.c userspace/output/json.c userspace/output/text.c userspace/base/text.c userspace/terms/tuple.c userspace/terms/words.c
// links: userspace/output/advice.c userspace/summary/aggregate.c userspace/summary/groups.c userspace/summary/series.c userspace/summary/window.c
// links: userspace/attach/counts.c userspace/attach/hooks.c userspace/attach/kernel.c userspace/attach/loading.c userspace/attach/tracer.c userspace/attach/types.c
// links: userspace/base/numbers.c userspace/base/log.c userspace/output/timeline_json.c userspace/output/timeline_text.c
// links: userspace/base/error.c userspace/privileges/privileges.c
// links: userspace/capture/audit.c userspace/attach/iterator.c userspace/capture/namespaces.c
/*
 * A record of any bytes, as the ring buffer might hand it out: decoded, counted, and written as
 * JSON that a parser takes and as text without a control character.
 */
#include <string.h>
#include <json-c/json.h>
#include "fuzz.h"
#include "output/writer.h"
#include "summary/series.h"
#include "summary/window.h"

/* There are no stacks here: their names are fuzz_names.c's and fuzz_symbols.c's. */
size_t nt_stacks_get(const struct nt_stacks *stacks, __s32 handle, const struct nt_frame **frames)
{
	(void)stacks, (void)handle, (void)frames;
	return 0;
}

static struct nt_settings settings;
static struct nt_targets targets = {.settings = &settings};
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

static void write_both(const struct nt_stall *stall, bool wide)
{
	char *line = NULL;
	size_t length;
	FILE *out = open_memstream(&line, &length);
	struct nt_writer text = nt_text_writer;

	text.wide = wide;
	FUZZ_CHECK(out && !nt_json_writer.stall(&nt_json_writer, out, stall, NULL));
	fclose(out);
	check_json(line, length);
	free(line);
	out = open_memstream(&line, &length);
	FUZZ_CHECK(out && !text.stall(&text, out, stall, NULL));
	fclose(out);
	if (nt_is_late_ack(stall))
		FUZZ_CHECK(!length); /* it is for nagletrace-join alone */
	else
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
	memcpy(&record, data + 1, size - 1 < sizeof(record) ? size - 1 : sizeof(record));
	if (!nt_stall_from_record(&stall, &record, &settings, &targets, &owners, NULL))
		return 0;
	write_both(&stall, data[0] & 1);
	if (nt_is_late_ack(&stall))
		return 0;
	nt_window_add(&window, &stall);
	nt_series_add(&series, &stall, record.time_ns);
	FUZZ_CHECK(nt_series_count(&series) <= 64);
	return 0;
}
