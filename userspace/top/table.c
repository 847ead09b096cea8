// SPDX-License-Identifier: GPL-2.0
#include "top/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "top/columns.h"

/* A screen with fewer lines than this leaves the part out. */
#define LINES_FOR_HINT      16
#define LINES_FOR_SPARKLINE 10
#define LINES_FOR_FOOTER    8
#define LINES_FOR_TOTALS    4

/* Writes "12s", "5m12s", "3h12m" or "2d3h". */
static void format_elapsed(uint64_t us, char *out, size_t size)
{
	uint64_t s = us / 1000000;

	if (s < 60)
		snprintf(out, size, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(out, size, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, size, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
	else
		snprintf(out, size, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}

/* ---- heading ---- */

static void draw_bar(struct nt_screen *screen, const struct nt_top_data *data,
		     const struct nt_top_about *about)
{
	char left[2 * NT_TOP_NAME], right[2 * NT_TOP_NAME], elapsed[32];
	int room;

	format_elapsed(data->uptime_us, elapsed, sizeof(elapsed));
	snprintf(left, sizeof(left), "nagletrace top  %s  %s %s", about->host,
		 about->own ? "traced here for" : "from the daemon, up", elapsed);
	snprintf(right, sizeof(right), "%.*s, %s hooks", (int)strcspn(data->kernel, "-"),
		 data->kernel, data->hooks);
	nt_screen_fill(screen, 0, NT_INK_BAR);
	nt_screen_put(screen, 0, 0, screen->columns, NT_INK_BAR, left);
	room = screen->columns - (int)strlen(left) - 2;
	if ((int)strlen(right) <= room)
		nt_screen_put(screen, 0, screen->columns - (int)strlen(right), room, NT_INK_BAR,
			      right);
}

static void draw_totals(struct nt_screen *screen, int row, const struct nt_top_data *data)
{
	int at;

	at = nt_screen_print(screen, row, 0, NT_INK_BOLD, "%.1f stalls/s now",
			     nt_top_rates_now(&data->rates));
	at += nt_screen_print(screen, row, at, NT_INK_PLAIN,
			      "   in all %" PRIu64 " stall%s cost %s   ", data->stalls,
			      nt_plural(data->stalls), nt_duration(data->excess_us * 1000).text);
	at += nt_screen_print(screen, row, at, data->records_dropped ? NT_INK_WARN : NT_INK_PLAIN,
			      "%" PRIu64 " record%s dropped", data->records_dropped,
			      nt_plural(data->records_dropped));
	if (data->in_standby)
		at += nt_screen_print(screen, row, at, NT_INK_PLAIN,
				      "   in standby: nothing attached");
	if (data->missing_hooks)
		nt_screen_print(screen, row, at, NT_INK_WARN, "   %" PRIu64 " hook%s missing",
				data->missing_hooks, nt_plural(data->missing_hooks));
}

/* Draws the sparkline with the latest cell at the right end. */
static void draw_sparkline(struct nt_screen *screen, int row, const struct nt_top_data *data)
{
	static const char label[] = "stalls/s ";
	int left = sizeof(label) - 1, right = 22, room = screen->columns - left - right;
	char text[NT_SPARKLINE_LEN], span[32];
	size_t cells;

	if (room < 8)
		return;
	nt_screen_put(screen, row, 0, left, NT_INK_PLAIN, label);
	cells = nt_top_rates_sparkline(&data->rates, room, text);
	nt_screen_put(screen, row, left + room - (int)cells, cells, NT_INK_LOSS, text);
	format_elapsed(cells * data->rates.cell_ns / 1000, span, sizeof(span));
	nt_screen_print(screen, row, left + room, NT_INK_PLAIN, " most %.1f in %s",
			nt_top_rates_most(&data->rates, cells), span);
}

/* Says of which process, or of which problem, all connections are. Returns how many columns that
 * took. */
static int print_line_of(struct nt_screen *screen, int row, int at,
			 const struct nt_top_model *model)
{
	const struct nt_top_row *one = &model->one_line_row;

	if (model->one_line_of == NT_TOP_PROBLEMS)
		return nt_screen_print(screen, row, at, NT_INK_PLAIN, " of %s, %s",
				       one->comm[0] ? one->comm : NT_TOP_UNKNOWN, one->pattern);
	if (one->key.pid < 0)
		return nt_screen_print(screen, row, at, NT_INK_PLAIN, " of the kernel");
	if (!one->key.pid)
		return nt_screen_print(screen, row, at, NT_INK_PLAIN, " of nobody known");
	return nt_screen_print(screen, row, at, NT_INK_PLAIN, " of process %" PRId64, one->key.pid);
}

/* Says which part of the data the table shows. */
static void draw_choice(struct nt_screen *screen, int row, const struct nt_top_model *model)
{
	const struct nt_top_data *data = nt_top_shown(model);
	static const char *const words[NT_TOP_VIEWS] = {
		[NT_TOP_CONNECTIONS] = "connection",
		[NT_TOP_PROCESSES] = "process",
		[NT_TOP_PROBLEMS] = "problem",
	};
	char span[32];
	int at = 0;

	format_elapsed(data->span_us, span, sizeof(span));
	if (model->paused)
		at = nt_screen_print(screen, row, 0, NT_INK_WARN, "PAUSED  ");
	at += nt_screen_print(screen, row, at, NT_INK_PLAIN, "%zu %s%s", model->count,
			      words[model->view],
			      model->count == 1                 ? ""
			      : model->view == NT_TOP_PROCESSES ? "es"
								: "s");
	if (model->one_line)
		at += print_line_of(screen, row, at, model);
	if (model->filter[0])
		at += nt_screen_print(screen, row, at, NT_INK_BOLD, " with \"%s\"", model->filter);
	nt_screen_print(screen, row, at, NT_INK_PLAIN, " that stalled in the last %s%s, by %s%s",
			span, data->full ? " (the most costly)" : "", nt_top_sort_name(model->sort),
			model->reverse ? ", reversed" : "");
}

/* ---- below the table ---- */

/* Describes the chosen line and its remedy. */
static void draw_hint(struct nt_screen *screen, int row, const struct nt_top_model *model)
{
	const struct nt_top_row *line;
	char text[2 * NT_TOP_TEXT];

	if (!model->count)
		return;
	line = model->lines[model->cursor].row;
	snprintf(text, sizeof(text), "%s: %s", line->pattern, line->what);
	nt_shorten(text, screen->columns - 6);
	nt_screen_put(screen, row, 0, 6, NT_INK_BOLD, "what");
	nt_screen_put(screen, row, 6, screen->columns, NT_INK_PLAIN, text);
	snprintf(text, sizeof(text), "%s", line->fix);
	nt_shorten(text, screen->columns - 6);
	nt_screen_put(screen, row + 1, 0, 6, NT_INK_BOLD, "fix");
	nt_screen_put(screen, row + 1, 6, screen->columns, NT_INK_PLAIN, text);
}

static void draw_footer(struct nt_screen *screen, const struct nt_top_model *model)
{
	int row = screen->rows - 1;

	nt_screen_fill(screen, row, NT_INK_BAR);
	if (model->typing)
		nt_screen_print(screen, row, 0, NT_INK_BAR, "filter: %s_   Enter keeps, Esc clears",
				model->filter);
	else
		nt_screen_print(screen, row, 0, NT_INK_BAR,
				"Enter %s  / filter  Space %s  Tab view  < > sort  %s  "
				"? help  q quit",
				model->view == NT_TOP_CONNECTIONS ? "why" : "into",
				model->paused ? "go on" : "pause",
				model->filter[0] || model->one_line ? "Esc all" : "r reverse");
}

static void draw_nothing(struct nt_screen *screen, int row, const struct nt_top_model *model)
{
	const struct nt_top_data *data = nt_top_shown(model);

	if (model->filter[0] || model->one_line) {
		nt_screen_print(screen, row, 0, NT_INK_PLAIN,
				"no connection like that has stalled; Esc shows all");
		return;
	}
	nt_screen_print(screen, row, 0, NT_INK_PLAIN,
			"no stall: no connection loses time to Nagle, cork and delayed ACKs");
	nt_screen_print(screen, row + 1, 0, NT_INK_PLAIN,
			"looked at %" PRIu64 " write%s, %" PRIu64 " hold%s, %" PRIu64
			" delayed ACK%s",
			data->writes, nt_plural(data->writes), data->holds, nt_plural(data->holds),
			data->delayed_acks, nt_plural(data->delayed_acks));
}

void nt_top_draw_table(struct nt_screen *screen, struct nt_top_model *model,
		       const struct nt_top_about *about)
{
	const struct nt_top_data *data = nt_top_shown(model);
	bool hint = screen->rows >= LINES_FOR_HINT;
	bool footer = screen->rows >= LINES_FOR_FOOTER || model->typing;
	int row = 1, last = screen->rows - footer - 2 * hint;

	draw_bar(screen, data, about);
	if (screen->rows >= LINES_FOR_TOTALS)
		draw_totals(screen, row++, data);
	if (screen->rows >= LINES_FOR_SPARKLINE)
		draw_sparkline(screen, row++, data);
	if (about->trouble[0])
		nt_screen_put(screen, row++, 0, screen->columns, NT_INK_WARN, about->trouble);
	if (screen->rows >= LINES_FOR_FOOTER || model->paused)
		draw_choice(screen, row++, model);
	if (screen->rows >= LINES_FOR_TOTALS)
		nt_top_draw_titles(screen, row++, model);
	model->fit = last > row ? last - row : 1;
	nt_top_move(model, 0);
	if (!model->count)
		draw_nothing(screen, row, model);
	for (size_t i = model->first; i < model->count && row < last; i++)
		nt_top_draw_line(screen, row++, model, &model->lines[i], i == model->cursor);
	if (hint)
		draw_hint(screen, last, model);
	if (footer)
		draw_footer(screen, model);
}
