/* SPDX-License-Identifier: GPL-2.0 */
/* Decides which lines `nagletrace top` shows, in which order, and which one is chosen. */
#pragma once

#include "top/data.h"

#define NT_TOP_FILTER 40 /* bytes of a filter, with its NUL */

enum nt_top_view {
	NT_TOP_CONNECTIONS,
	NT_TOP_PROCESSES,
	NT_TOP_PROBLEMS, /* as summary/groups.h has them */
	NT_TOP_VIEWS,
};

enum nt_top_sort {
	NT_TOP_BY_EXCESS,
	NT_TOP_BY_STALLS,
	NT_TOP_BY_P50, /* of connections only */
	NT_TOP_BY_MAX,
	NT_TOP_BY_RATE,
	NT_TOP_BY_NAME,
	NT_TOP_SORTS,
};

/* A page other than the table covers it. */
enum nt_top_page {
	NT_TOP_TABLE,
	NT_TOP_DETAIL, /* one connection */
	NT_TOP_HELP,
};

/* A line of the table is a connection, or several: row is then the most costly of them. */
struct nt_top_line {
	const struct nt_top_row *row;
	size_t connections;
	size_t processes; /* of a problem */
	uint64_t stalls, excess_us, max_us;
	double rate;
};

struct nt_top_model {
	struct nt_top_data live;   /* the source goes on updating it */
	struct nt_top_data frozen; /* as it was when paused */
	bool paused;
	enum nt_top_view view;
	enum nt_top_sort sort;
	bool reverse;
	enum nt_top_page page;
	enum nt_top_page below_help; /* the page that help covers */
	char filter[NT_TOP_FILTER];
	bool typing;   /* keys go into the filter */
	bool one_line; /* show connections of this line of that view only */
	enum nt_top_view one_line_of;
	struct nt_top_row one_line_row;

	struct nt_top_line *lines;
	size_t count, room;
	size_t cursor, first; /* the chosen line, the first one on the screen */
	size_t fit;           /* the lines that the screen has room for */
	struct nt_top_row chosen;
	struct nt_top_row detail; /* a copy: it stays when its connection is no longer reported */
	bool detail_gone;
	bool quit;
};

void nt_top_model_init(struct nt_top_model *model, uint64_t interval_ns);
void nt_top_model_free(struct nt_top_model *model);

/* Returns the data that is shown: live, or as it was when paused. */
const struct nt_top_data *nt_top_shown(const struct nt_top_model *model);

/* Makes the lines anew and keeps the chosen one. The caller calls it when data or choice have
 * changed. */
void nt_top_update(struct nt_top_model *model);

/* These are the actions of the keys. */
void nt_top_pause(struct nt_top_model *model, bool pause);
void nt_top_choose_view(struct nt_top_model *model, enum nt_top_view view);
void nt_top_choose_sort(struct nt_top_model *model, enum nt_top_sort sort);
void nt_top_move(struct nt_top_model *model, long lines);
void nt_top_enter(struct nt_top_model *model);  /* opens the chosen line */
void nt_top_help(struct nt_top_model *model);   /* shows the keys */
void nt_top_escape(struct nt_top_model *model); /* goes one step back: page, filter, process */

/* Names the source of the data, and its current trouble ("": none). */
struct nt_top_about {
	char host[NT_TOP_NAME];
	bool own; /* traced by this process, not by the daemon */
	const char *trouble;
};
