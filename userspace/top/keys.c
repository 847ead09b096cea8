// SPDX-License-Identifier: GPL-2.0
#include "top/keys.h"

#include <limits.h>
#include <string.h>

#include <curses.h>

#define ESCAPE 27
#define DELETE 127

static const char sort_keys[NT_TOP_SORTS] = {
	[NT_TOP_BY_EXCESS] = 'l', [NT_TOP_BY_STALLS] = 's', [NT_TOP_BY_P50] = '5',
	[NT_TOP_BY_MAX] = 'm',    [NT_TOP_BY_RATE] = 'a',   [NT_TOP_BY_NAME] = 'o',
};

const struct nt_top_key_help nt_top_keys_help[] = {
	{"c  p  b  Tab", "by connection, by process, by problem, the next of these"},
	{"l s 5 m a o", "sort by LOST, STALLS, P50, MAX, RATE, PROCESS (underlined letter)"},
	{"<  >  r", "sort by the column to the left, to the right; reverse"},
	{"arrows j k", "choose a line; also PgUp, PgDn, Home, End"},
	{"Enter", "into the process or problem, or the connection: why, fix, last stall"},
	{"Esc", "one step back: out of it, filter off"},
	{"/", "filter: process, pid, peer, address, cgroup, pod, container, pattern"},
	{"Space", "pause; what happens meanwhile is gathered all the same"},
	{"q  Ctrl-C", "quit"},
	{NULL, NULL},
};

char nt_top_sort_key(enum nt_top_sort sort)
{
	return sort_keys[sort];
}

static void type(struct nt_top_model *model, int key)
{
	size_t n = strlen(model->filter);

	switch (key) {
	case ESCAPE:
		model->filter[0] = '\0';
		model->typing = false;
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
		model->typing = false;
		break;
	case DELETE:
	case '\b':
	case KEY_BACKSPACE:
		while (n && (model->filter[n - 1] & 0xc0) == 0x80)
			n--;
		if (n)
			model->filter[n - 1] = '\0';
		break;
	default:
		if (key < ' ' || key > 0xff || n + 1 >= NT_TOP_FILTER)
			return;
		model->filter[n] = key;
		model->filter[n + 1] = '\0';
	}
	nt_top_update(model);
}

/* Sorts by the column beside the current one. */
static void sort_by_neighbour(struct nt_top_model *model, int step)
{
	static const enum nt_top_sort order[] = {NT_TOP_BY_NAME, NT_TOP_BY_STALLS, NT_TOP_BY_EXCESS,
						 NT_TOP_BY_P50,  NT_TOP_BY_MAX,    NT_TOP_BY_RATE};
	int at = 0;

	while (order[at] != model->sort)
		at++;
	at += step;
	if (at >= 0 && at < NT_TOP_SORTS && order[at] == NT_TOP_BY_P50 &&
	    model->view != NT_TOP_CONNECTIONS)
		at += step;
	if (at >= 0 && at < NT_TOP_SORTS)
		nt_top_choose_sort(model, order[at]);
}

static bool sorts(struct nt_top_model *model, int key)
{
	for (int i = 0; i < NT_TOP_SORTS; i++) {
		if (key == sort_keys[i]) {
			nt_top_choose_sort(model, i);
			return true;
		}
	}
	if (key != '<' && key != '>')
		return false;
	sort_by_neighbour(model, key == '<' ? -1 : 1);
	return true;
}

static bool moves(struct nt_top_model *model, int key)
{
	long page = model->fit > 1 ? model->fit - 1 : 1, lines;

	switch (key) {
	case KEY_UP:
	case 'k':
		lines = -1;
		break;
	case KEY_DOWN:
	case 'j':
		lines = 1;
		break;
	case KEY_PPAGE:
		lines = -page;
		break;
	case KEY_NPAGE:
		lines = page;
		break;
	case KEY_HOME:
	case 'g':
		lines = -(long)model->count;
		break;
	case KEY_END:
	case 'G':
		lines = model->count;
		break;
	default:
		return false;
	}
	nt_top_move(model, lines);
	if (model->page == NT_TOP_DETAIL) { /* to the next connection */
		model->page = NT_TOP_TABLE;
		nt_top_enter(model);
	}
	return true;
}

static void choose(struct nt_top_model *model, int key)
{
	switch (key) {
	case 'c':
		nt_top_choose_view(model, NT_TOP_CONNECTIONS);
		break;
	case 'p':
		nt_top_choose_view(model, NT_TOP_PROCESSES);
		break;
	case 'b':
		nt_top_choose_view(model, NT_TOP_PROBLEMS);
		break;
	case '\t':
		nt_top_choose_view(model, (model->view + 1) % NT_TOP_VIEWS);
		break;
	case 'r':
		model->reverse = !model->reverse;
		nt_top_update(model);
		break;
	case '/':
		model->typing = true;
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
	case KEY_RIGHT:
		nt_top_enter(model);
		break;
	default:
		break;
	}
}

void nt_top_key(struct nt_top_model *model, int key)
{
	if (model->typing) {
		type(model, key);
		return;
	}
	switch (key) {
	case 'q':
		if (model->page == NT_TOP_TABLE)
			model->quit = true;
		else
			nt_top_escape(model);
		return;
	case ESCAPE:
	case KEY_LEFT:
		nt_top_escape(model);
		return;
	case ' ':
		nt_top_pause(model, !model->paused);
		return;
	case 'h':
	case '?':
		if (model->page == NT_TOP_HELP)
			nt_top_escape(model);
		else
			nt_top_help(model);
		return;
	default:
		break;
	}
	if (model->page == NT_TOP_HELP) {
		nt_top_escape(model);
		return;
	}
	if (moves(model, key) || model->page == NT_TOP_DETAIL)
		return;
	if (!sorts(model, key))
		choose(model, key);
}
