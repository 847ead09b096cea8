// SPDX-License-Identifier: GPL-2.0
#include "top/columns.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "top/keys.h"

#define CELL_LEN       256
#define FULL_ADDRESSES 46             /* columns of a screen that shows both addresses */
#define HOURS_FROM_US  99999500000ULL /* from here on, seconds take more than six columns */

struct cell {
	char text[CELL_LEN];
	const struct nt_top_line *line;
	int width;
};

struct column {
	const char *title;
	int width; /* 0: it takes what the others leave */
	int least; /* the columns that a screen needs to show it */
	int sort;  /* enum nt_top_sort, or -1 */
	bool right;
	void (*write)(struct cell *cell);
};

const char *nt_top_sort_name(enum nt_top_sort sort)
{
	static const char *const names[NT_TOP_SORTS] = {
		[NT_TOP_BY_EXCESS] = "lost time", [NT_TOP_BY_STALLS] = "stalls",
		[NT_TOP_BY_P50] = "median",       [NT_TOP_BY_MAX] = "longest stall",
		[NT_TOP_BY_RATE] = "rate",        [NT_TOP_BY_NAME] = "name",
	};

	return names[sort];
}

/* Returns how many decimals give a number three figures. */
static int decimals(double value)
{
	return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

void nt_top_duration(uint64_t us, char *out, size_t size)
{
	double hours = us / 3.6e9;
	struct nt_duration duration;
	char *blank;

	if (us >= HOURS_FROM_US) {
		snprintf(out, size, "%.*fh", decimals(hours), hours);
		return;
	}
	duration = nt_duration(us * 1000);
	blank = strchr(duration.text, ' ');
	if (blank)
		memmove(blank, blank + 1, strlen(blank));
	snprintf(out, size, "%s", duration.text);
}

void nt_top_rate(double rate, char *out, size_t size)
{
	if (rate <= 0)
		snprintf(out, size, "0");
	else
		snprintf(out, size, "%.*f", rate < 0.995 ? 2 : rate < 99.95 ? 1 : 0, rate);
}

/* ---- what is in them ---- */

static void write_process(struct cell *cell)
{
	nt_top_row_process(cell->line->row, cell->width, cell->text, CELL_LEN);
}

static void write_side(struct cell *cell)
{
	snprintf(cell->text, CELL_LEN, "%s", cell->line->row->key.sender ? "send" : "recv");
}

static void write_connection(struct cell *cell)
{
	const struct nt_top_key *key = &cell->line->row->key;
	const char *port = strrchr(key->local, ':');

	if (cell->width >= FULL_ADDRESSES || !port)
		port = key->local;
	/* drop the arrow's blanks before any part of the addresses */
	snprintf(cell->text, CELL_LEN, "%s → %s", port, key->remote);
	if ((int)strlen(port) + 3 + (int)strlen(key->remote) > cell->width)
		snprintf(cell->text, CELL_LEN, "%s→%s", port, key->remote);
	nt_shorten(cell->text, cell->width);
}

/* Writes whose problem it is: a process, or the name of several. */
static void write_program(struct cell *cell)
{
	if (cell->line->processes == 1)
		write_process(cell);
	else
		snprintf(cell->text, CELL_LEN, "%s, %zu processes",
			 cell->line->row->comm[0] ? cell->line->row->comm : NT_TOP_UNKNOWN,
			 cell->line->processes);
	nt_shorten(cell->text, cell->width);
}

static void write_connections(struct cell *cell)
{
	snprintf(cell->text, CELL_LEN, "%zu", cell->line->connections);
}

/* Writes a count; a million or more has no room for all its digits. */
static void write_stalls(struct cell *cell)
{
	const char *unit = "MGTPE";
	double value = cell->line->stalls / 1e6;

	if (cell->line->stalls < 1000000) {
		snprintf(cell->text, CELL_LEN, "%" PRIu64, cell->line->stalls);
		return;
	}
	for (; value >= 999.5; value /= 1000)
		unit++;
	snprintf(cell->text, CELL_LEN, "%.*f%c", decimals(value), value, *unit);
}

static void write_excess(struct cell *cell)
{
	nt_top_duration(cell->line->excess_us, cell->text, CELL_LEN);
}

static void write_p50(struct cell *cell)
{
	nt_top_duration(cell->line->row->p50_us, cell->text, CELL_LEN);
}

static void write_max(struct cell *cell)
{
	nt_top_duration(cell->line->max_us, cell->text, CELL_LEN);
}

static void write_rate(struct cell *cell)
{
	nt_top_rate(cell->line->rate, cell->text, CELL_LEN);
}

static void write_pattern(struct cell *cell)
{
	snprintf(cell->text, CELL_LEN, "%s", cell->line->row->pattern);
}

/* Writes the pod's UID, as far as a report shows it; nothing for who is in no pod. */
static void write_pod(struct cell *cell)
{
	snprintf(cell->text, CELL_LEN, "%.8s", cell->line->row->container.pod_uid);
}

/* ---- which there are ---- */

static const struct column of_connections[] = {
	{"PROCESS", 17, 0, NT_TOP_BY_NAME, false, write_process},
	{"SIDE", 4, 72, -1, false, write_side},
	{"CONNECTION", 0, 64, -1, false, write_connection},
	{"STALLS", 6, 48, NT_TOP_BY_STALLS, true, write_stalls},
	{"LOST", 6, 0, NT_TOP_BY_EXCESS, true, write_excess},
	{"P50", 6, 76, NT_TOP_BY_P50, true, write_p50},
	{"MAX", 6, 56, NT_TOP_BY_MAX, true, write_max},
	{"RATE", 5, 40, NT_TOP_BY_RATE, true, write_rate},
	{"PATTERN", 16, 97, -1, false, write_pattern},
	{"POD", 8, 120, -1, false, write_pod},
	{0},
};

static const struct column of_processes[] = {
	{"PROCESS", 0, 0, NT_TOP_BY_NAME, false, write_process},
	{"CONNS", 5, 48, -1, true, write_connections},
	{"STALLS", 6, 48, NT_TOP_BY_STALLS, true, write_stalls},
	{"LOST", 6, 0, NT_TOP_BY_EXCESS, true, write_excess},
	{"MAX", 6, 56, NT_TOP_BY_MAX, true, write_max},
	{"RATE", 5, 40, NT_TOP_BY_RATE, true, write_rate},
	{"PATTERN", 16, 72, -1, false, write_pattern},
	{"POD", 8, 84, -1, false, write_pod},
	{0},
};

static const struct column of_problems[] = {
	{"PROCESS", 0, 0, NT_TOP_BY_NAME, false, write_program},
	{"SIDE", 4, 72, -1, false, write_side},
	{"CONNS", 5, 48, -1, true, write_connections},
	{"STALLS", 6, 48, NT_TOP_BY_STALLS, true, write_stalls},
	{"LOST", 6, 0, NT_TOP_BY_EXCESS, true, write_excess},
	{"MAX", 6, 56, NT_TOP_BY_MAX, true, write_max},
	{"RATE", 5, 64, NT_TOP_BY_RATE, true, write_rate},
	{"PATTERN", 16, 40, -1, false, write_pattern},
	{0},
};

static const struct column *columns_of(const struct nt_top_model *model)
{
	switch (model->view) {
	case NT_TOP_PROCESSES:
		return of_processes;
	case NT_TOP_PROBLEMS:
		return of_problems;
	default:
		return of_connections;
	}
}

static bool fits(const struct nt_screen *screen, const struct column *column)
{
	return screen->columns >= column->least;
}

/* Returns a column's width. One column takes what the others leave: the first if no other fits. */
static int width_of(const struct nt_screen *screen, const struct column *columns, size_t i)
{
	const struct column *flexible = columns;
	int left = screen->columns;

	for (const struct column *c = columns; c->title; c++)
		if (!c->width && fits(screen, c))
			flexible = c;
	if (&columns[i] != flexible)
		return columns[i].width;
	for (const struct column *c = columns; c->title; c++)
		if (fits(screen, c))
			left -= (c == flexible ? 0 : c->width) + (c != columns);
	return left > 0 ? left : 0;
}

/* Underlines the letter that sorts by this column, and marks the column that the table is sorted
 * by. */
static void draw_title(struct nt_screen *screen, int row, int at, const struct column *column,
		       const struct nt_top_model *model)
{
	const char *key;
	char letter[2] = "";

	nt_screen_put(screen, row, at, screen->columns, NT_INK_BOLD, column->title);
	if (column->sort < 0)
		return;
	letter[0] = toupper((unsigned char)nt_top_sort_key(column->sort));
	key = strchr(column->title, letter[0]);
	if (key)
		nt_screen_put(screen, row, at + (key - column->title), 1, NT_INK_KEY, letter);
	if (column->sort != (int)model->sort)
		return;
	at += column->right ? -1 : (int)strlen(column->title);
	nt_screen_put(screen, row, at, 1, NT_INK_BOLD, model->reverse ? "▲" : "▼");
}

void nt_top_draw_titles(struct nt_screen *screen, int row, const struct nt_top_model *model)
{
	const struct column *columns = columns_of(model);
	int at = 0;

	for (size_t i = 0; columns[i].title; i++) {
		int width = width_of(screen, columns, i), indent;

		if (!fits(screen, &columns[i]))
			continue;
		indent = columns[i].right ? width - (int)strlen(columns[i].title) : 0;
		draw_title(screen, row, at + indent, &columns[i], model);
		at += width + 1;
	}
}

void nt_top_draw_line(struct nt_screen *screen, int row, const struct nt_top_model *model,
		      const struct nt_top_line *line, bool chosen)
{
	const struct column *columns = columns_of(model);
	enum nt_ink ink = chosen ? NT_INK_BAR : NT_INK_PLAIN;
	int at = 0;

	nt_screen_fill(screen, row, ink);
	for (size_t i = 0; columns[i].title; i++) {
		struct cell cell = {.line = line, .width = width_of(screen, columns, i)};
		int indent = 0;

		if (!fits(screen, &columns[i]))
			continue;
		columns[i].write(&cell);
		if (columns[i].right && (int)strlen(cell.text) < cell.width)
			indent = cell.width - (int)strlen(cell.text);
		nt_screen_put(screen, row, at + indent, cell.width, ink, cell.text);
		at += cell.width + 1;
	}
}
