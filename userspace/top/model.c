// SPDX-License-Identifier: GPL-2.0
#include "top/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nt_top_model_init(struct nt_top_model *model, uint64_t interval_ns)
{
	memset(model, 0, sizeof(*model));
	nt_top_data_init(&model->live, interval_ns);
	nt_top_data_init(&model->frozen, interval_ns);
	model->fit = 1;
}

void nt_top_model_free(struct nt_top_model *model)
{
	nt_top_data_free(&model->live);
	nt_top_data_free(&model->frozen);
	free(model->lines);
	model->lines = NULL;
	model->count = model->room = 0;
}

const struct nt_top_data *nt_top_shown(const struct nt_top_model *model)
{
	return model->paused ? &model->frozen : &model->live;
}

/* ---- which rows ---- */

static bool matches(const struct nt_top_row *row, const char *filter)
{
	const char *const texts[] = {row->key.local, row->key.remote,   row->cgroup,
				     row->peer,      row->container.id, row->container.pod_uid,
				     row->pattern};
	char process[2 * NT_TOP_NAME];

	if (!filter[0])
		return true;
	nt_top_row_process(row, process, sizeof(process));
	if (strcasestr(process, filter))
		return true;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (strcasestr(texts[i], filter))
			return true;
	return false;
}

static bool wanted(const struct nt_top_model *model, const struct nt_top_row *row)
{
	if (!nt_top_row_shown(row))
		return false;
	if (model->one_process && row->key.pid != model->only_pid)
		return false;
	return matches(row, model->filter);
}

/* Returns the line of the row's process, if there is one yet. */
static struct nt_top_line *line_of_process(struct nt_top_model *model, const struct nt_top_row *row)
{
	for (size_t i = 0; i < model->count; i++)
		if (model->lines[i].row->key.pid == row->key.pid)
			return &model->lines[i];
	return NULL;
}

static void add_row(struct nt_top_model *model, const struct nt_top_row *row)
{
	struct nt_top_line *line = NULL;

	if (model->view == NT_TOP_PROCESSES)
		line = line_of_process(model, row);
	if (!line) {
		line = &model->lines[model->count++];
		memset(line, 0, sizeof(*line));
		line->row = row;
	}
	line->connections++;
	line->stalls += row->stalls;
	line->excess_us += row->excess_us;
	line->rate += row->rate;
	if (row->max_us > line->max_us)
		line->max_us = row->max_us;
	if (row->excess_us > line->row->excess_us)
		line->row = row;
}

/* ---- in which order ---- */

static int compare_numbers(double x, double y)
{
	return x < y ? 1 : x > y ? -1 : 0; /* the largest come first */
}

static int compare_names(const struct nt_top_row *x, const struct nt_top_row *y)
{
	int order = strcasecmp(x->comm, y->comm);

	if (order || x->key.pid == y->key.pid)
		return order;
	return x->key.pid < y->key.pid ? -1 : 1;
}

static int compare(const void *a, const void *b, void *context)
{
	const struct nt_top_line *x = a, *y = b;
	const struct nt_top_model *model = context;
	int order = 0;

	switch (model->sort) {
	case NT_TOP_BY_STALLS:
		order = compare_numbers(x->stalls, y->stalls);
		break;
	case NT_TOP_BY_P50:
		order = compare_numbers(x->row->p50_us, y->row->p50_us);
		break;
	case NT_TOP_BY_MAX:
		order = compare_numbers(x->max_us, y->max_us);
		break;
	case NT_TOP_BY_RATE:
		order = compare_numbers(x->rate, y->rate);
		break;
	case NT_TOP_BY_NAME:
		order = compare_names(x->row, y->row);
		break;
	default:
		break;
	}
	if (!order)
		order = compare_numbers(x->excess_us, y->excess_us);
	if (!order) /* equal lines keep their order */
		order = memcmp(&x->row->key, &y->row->key, sizeof(x->row->key));
	return model->reverse ? -order : order;
}

/* ---- which one is chosen ---- */

static bool is_chosen(const struct nt_top_model *model, const struct nt_top_line *line)
{
	if (model->view == NT_TOP_PROCESSES)
		return line->row->key.pid == model->chosen.pid;
	return !memcmp(&line->row->key, &model->chosen, sizeof(model->chosen));
}

/* Follows the chosen line to its new place. The first line is a place, and stays the first. */
static void find_chosen(struct nt_top_model *model)
{
	for (size_t i = 0; i < model->count && model->cursor; i++) {
		if (is_chosen(model, &model->lines[i])) {
			model->cursor = i;
			break;
		}
	}
	nt_top_move(model, 0);
}

void nt_top_move(struct nt_top_model *model, long lines)
{
	long at = (long)model->cursor + lines, last = (long)model->count - 1;

	if (at > last)
		at = last;
	if (at < 0)
		at = 0;
	model->cursor = at;
	if (model->count)
		model->chosen = model->lines[at].row->key;
	if (model->cursor < model->first)
		model->first = model->cursor;
	if (model->cursor >= model->first + model->fit)
		model->first = model->cursor - model->fit + 1;
	if (model->first + model->fit > model->count)
		model->first = model->count > model->fit ? model->count - model->fit : 0;
}

static void update_detail(struct nt_top_model *model)
{
	const struct nt_top_row *row = nt_top_data_find(nt_top_shown(model), &model->detail.key);

	model->detail_gone = !row || !nt_top_row_shown(row);
	if (!model->detail_gone)
		model->detail = *row;
}

void nt_top_update(struct nt_top_model *model)
{
	const struct nt_top_data *data = nt_top_shown(model);

	model->count = 0;
	if (data->count > model->room) {
		struct nt_top_line *more = realloc(model->lines, data->count * sizeof(*more));

		if (!more)
			return;
		model->lines = more;
		model->room = data->count;
	}
	for (size_t i = 0; i < data->count; i++)
		if (wanted(model, &data->rows[i]))
			add_row(model, &data->rows[i]);
	if (model->count)
		qsort_r(model->lines, model->count, sizeof(*model->lines), compare, model);
	find_chosen(model);
	if (model->page == NT_TOP_DETAIL)
		update_detail(model);
}

/* ---- what the keys do ---- */

void nt_top_pause(struct nt_top_model *model, bool pause)
{
	/* without memory for a copy, the display goes on */
	model->paused = pause && !nt_top_data_copy(&model->frozen, &model->live);
	nt_top_update(model);
}

void nt_top_choose_view(struct nt_top_model *model, enum nt_top_view view)
{
	model->view = view;
	model->one_process = false;
	model->cursor = model->first = 0;
	if (view == NT_TOP_PROCESSES && model->sort == NT_TOP_BY_P50)
		nt_top_choose_sort(model, NT_TOP_BY_EXCESS);
	nt_top_update(model);
}

void nt_top_choose_sort(struct nt_top_model *model, enum nt_top_sort sort)
{
	if (sort == NT_TOP_BY_P50 && model->view == NT_TOP_PROCESSES)
		return; /* no column shows it */
	if (model->sort != sort)
		model->reverse = false;
	model->sort = sort;
	nt_top_update(model);
}

void nt_top_enter(struct nt_top_model *model)
{
	if (!model->count || model->page != NT_TOP_TABLE)
		return;
	if (model->view == NT_TOP_CONNECTIONS) {
		model->detail = *model->lines[model->cursor].row;
		model->detail_gone = false;
		model->page = NT_TOP_DETAIL;
		return;
	}
	model->only_pid = model->lines[model->cursor].row->key.pid;
	model->one_process = true;
	model->view = NT_TOP_CONNECTIONS;
	model->cursor = model->first = 0;
	nt_top_update(model);
}

void nt_top_help(struct nt_top_model *model)
{
	if (model->page != NT_TOP_HELP)
		model->below_help = model->page;
	model->page = NT_TOP_HELP;
}

void nt_top_escape(struct nt_top_model *model)
{
	if (model->page == NT_TOP_HELP) {
		model->page = model->below_help;
	} else if (model->page != NT_TOP_TABLE) {
		model->page = NT_TOP_TABLE;
	} else if (model->filter[0]) {
		model->filter[0] = '\0';
	} else if (model->one_process) {
		int64_t pid = model->only_pid;

		nt_top_choose_view(model, NT_TOP_PROCESSES);
		for (size_t i = 0; i < model->count; i++)
			if (model->lines[i].row->key.pid == pid)
				nt_top_move(model, (long)i - (long)model->cursor);
	}
	nt_top_update(model);
}
