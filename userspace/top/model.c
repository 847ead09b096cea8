// SPDX-License-Identifier: GPL-2.0
#include "top/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

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
	nt_top_row_process(row, 0, process, sizeof(process));
	if (strcasestr(process, filter))
		return true;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (strcasestr(texts[i], filter))
			return true;
	return false;
}

/* Do both connections belong to one line of this view? */
static bool is_same_line(enum nt_top_view view, const struct nt_top_row *a,
			 const struct nt_top_row *b)
{
	switch (view) {
	case NT_TOP_PROCESSES:
		return a->key.pid == b->key.pid;
	case NT_TOP_PROBLEMS:
		return a->key.sender == b->key.sender && !strcmp(a->comm, b->comm) &&
		       !strcmp(a->key.cause, b->key.cause) &&
		       !strcmp(a->key.reason, b->key.reason) && !strcmp(a->pattern, b->pattern);
	default:
		return !memcmp(&a->key, &b->key, sizeof(a->key));
	}
}

static bool wanted(const struct nt_top_model *model, const struct nt_top_row *row)
{
	if (!nt_top_row_shown(row))
		return false;
	if (model->one_line && !is_same_line(model->one_line_of, row, &model->one_line_row))
		return false;
	return matches(row, model->filter);
}

/* Returns the row's line, if there is one yet. */
static struct nt_top_line *line_of(struct nt_top_model *model, const struct nt_top_row *row)
{
	for (size_t i = 0; i < model->count && model->view != NT_TOP_CONNECTIONS; i++)
		if (is_same_line(model->view, model->lines[i].row, row))
			return &model->lines[i];
	return NULL;
}

/* Has a row before this one the same line and the same process? */
static bool is_known_process(const struct nt_top_model *model, const struct nt_top_row *row)
{
	for (const struct nt_top_row *r = nt_top_shown(model)->rows; r < row; r++)
		if (r->key.pid == row->key.pid && wanted(model, r) &&
		    is_same_line(model->view, r, row))
			return true;
	return false;
}

static void add_row(struct nt_top_model *model, const struct nt_top_row *row)
{
	struct nt_top_line *line = line_of(model, row);

	if (!line) {
		line = &model->lines[model->count++];
		memset(line, 0, sizeof(*line));
		line->row = row;
	}
	line->connections++;
	line->processes += model->view == NT_TOP_PROBLEMS && !is_known_process(model, row);
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

/* Follows the chosen line to its new place. In the table the first line is a place, and stays. */
static void find_chosen(struct nt_top_model *model)
{
	bool follows = model->cursor || model->page == NT_TOP_DETAIL;

	for (size_t i = 0; i < model->count && follows; i++) {
		if (is_same_line(model->view, model->lines[i].row, &model->chosen)) {
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
		model->chosen = *model->lines[at].row;
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
		if (nt_resize(&model->lines, data->count, sizeof(*model->lines)))
			return;
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
	model->one_line = false;
	model->cursor = model->first = 0;
	if (view != NT_TOP_CONNECTIONS && model->sort == NT_TOP_BY_P50)
		nt_top_choose_sort(model, NT_TOP_BY_EXCESS);
	nt_top_update(model);
}

void nt_top_choose_sort(struct nt_top_model *model, enum nt_top_sort sort)
{
	if (sort == NT_TOP_BY_P50 && model->view != NT_TOP_CONNECTIONS)
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
	model->one_line_row = *model->lines[model->cursor].row;
	model->one_line_of = model->view;
	model->one_line = true;
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
	} else if (model->one_line) {
		nt_top_choose_view(model, model->one_line_of);
		for (size_t i = 0; i < model->count; i++)
			if (is_same_line(model->view, model->lines[i].row, &model->one_line_row))
				nt_top_move(model, (long)i - (long)model->cursor);
	}
	nt_top_update(model);
}
