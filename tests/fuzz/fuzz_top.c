// SPDX-License-Identifier: GPL-2.0
// links: userspace/top/feed.c userspace/top/model.c userspace/top/data.c userspace/top/rates.c
// links: userspace/top/ladder.c userspace/base/text.c
// links: userspace/protocol/answers.c userspace/protocol/json_scan.c userspace/base/numbers.c
/* What a daemon, or what else serves its socket, tells `nagletrace top`: lines of whatever there
 * is. */
#include <string.h>
#include "protocol/answers.h"
#include "fuzz.h"
#include "top/ladder.h"
#include "top/feed.h"
#include "top/model.h"

#define MAX_BYTES 65536

/* Nothing in it moves a cursor. */
static void check_text(const char *text, size_t size)
{
	FUZZ_CHECK(memchr(text, '\0', size));
	for (const char *c = text; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check_row(const struct nt_top_row *row)
{
	char lines[NT_LADDER_LINES][NT_LADDER_BYTES];
	size_t n = nt_text_ladder(&row->last, row->comm, row->peer, 80, 16, lines);

	FUZZ_CHECK(n <= 16);
	for (size_t i = 0; i < n; i++)
		check_text(lines[i], sizeof(lines[i]));
	FUZZ_CHECK(row->key.local[0] && row->key.remote[0]);
	check_text(row->comm, sizeof(row->comm));
	check_text(row->cgroup, sizeof(row->cgroup));
	check_text(row->peer, sizeof(row->peer));
	check_text(row->key.local, sizeof(row->key.local));
	check_text(row->key.remote, sizeof(row->key.remote));
	check_text(row->pattern, sizeof(row->pattern));
	check_text(row->what, sizeof(row->what));
	check_text(row->why, sizeof(row->why));
	check_text(row->fix, sizeof(row->fix));
	check_text(row->where, sizeof(row->where));
}

static void check_model(struct nt_top_model *model)
{
	char text[NT_SPARKLINE_LEN];

	nt_top_update(model);
	FUZZ_CHECK(model->count <= model->live.count && model->live.count <= 2 * NT_TOP_ROWS);
	for (size_t i = 0; i < model->live.count; i++)
		check_row(&model->live.rows[i]);
	nt_top_rates_sparkline(&model->live.rates, 60, text);
	nt_top_choose_view(model, NT_TOP_PROBLEMS);
	nt_top_choose_view(model, NT_TOP_PROCESSES);
	nt_top_enter(model);
	nt_top_enter(model);
	nt_top_pause(model, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_string(data, size, MAX_BYTES), *rest = copy, *line, err[NT_ANSWER_ERR];
	struct nt_top_model model;
	uint64_t now_ns = 0;

	if (!copy)
		return 0;
	nt_top_model_init(&model, 1000000000);
	while ((line = strsep(&rest, "\n"))) {
		err[0] = '\0';
		if (nt_top_feed_line(&model.live, line, strlen(line), now_ns += 700000000, err,
				     sizeof(err)) == NT_TOP_FED_WRONG)
			fuzz_check_message(err);
	}
	check_model(&model);
	nt_top_model_free(&model);
	free(copy);
	return 0;
}
