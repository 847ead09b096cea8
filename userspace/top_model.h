/* SPDX-License-Identifier: GPL-2.0 */
/* What `nagletrace top` shows of what it was told: which lines, in which order, which one chosen.
 */
#ifndef NT_TOP_MODEL_H
#define NT_TOP_MODEL_H

#include "top_data.h"

#define NT_TOP_FILTER 40 /* bytes of a filter, with its NUL */

enum nt_top_view {
	NT_TOP_CONNECTIONS,
	NT_TOP_PROCESSES,
};

enum nt_top_sort {
	NT_TOP_BY_LOST,
	NT_TOP_BY_STALLS,
	NT_TOP_BY_P50, /* of connections only */
	NT_TOP_BY_MAX,
	NT_TOP_BY_RATE,
	NT_TOP_BY_NAME,
	NT_TOP_SORTS,
};

/* What covers the table. */
enum nt_top_page {
	NT_TOP_TABLE,
	NT_TOP_DETAIL, /* one connection */
	NT_TOP_HELP,
};

/* A line of the table: a connection, or a process, of which row is the most costly one. */
struct nt_top_line {
	const struct nt_top_row *row;
	size_t connections;
	uint64_t stalls, lost_us, max_us;
	double rate;
};

struct nt_top_model {
	struct nt_top_data live;   /* goes on being told */
	struct nt_top_data frozen; /* as it was when paused */
	bool paused;
	enum nt_top_view view;
	enum nt_top_sort sort;
	bool reverse;
	enum nt_top_page page;
	enum nt_top_page below_help; /* the page that help covers */
	char filter[NT_TOP_FILTER];
	bool typing;      /* the filter */
	bool one_process; /* connections of that process only */
	int64_t only_pid;

	struct nt_top_line *lines;
	size_t count, room;
	size_t cursor, first; /* the chosen line, the first one on the screen */
	size_t fit;           /* lines that the screen has room for */
	struct nt_top_key chosen;
	struct nt_top_row detail; /* a copy: it stays when its connection is told of no more */
	bool detail_gone;
	bool quit;
};

void nt_top_model_init(struct nt_top_model *model, uint64_t interval_ns);
void nt_top_model_free(struct nt_top_model *model);

/* What is shown: live, or as it was when paused. */
const struct nt_top_data *nt_top_shown(const struct nt_top_model *model);

/* To be called when something was told, or chosen: makes the lines anew, keeping the chosen one. */
void nt_top_update(struct nt_top_model *model);

/* What the keys do. */
void nt_top_pause(struct nt_top_model *model, bool pause);
void nt_top_choose_view(struct nt_top_model *model, enum nt_top_view view);
void nt_top_choose_sort(struct nt_top_model *model, enum nt_top_sort sort);
void nt_top_move(struct nt_top_model *model, long lines);
void nt_top_enter(struct nt_top_model *model);  /* into the chosen line */
void nt_top_help(struct nt_top_model *model);   /* what the keys do */
void nt_top_escape(struct nt_top_model *model); /* one step back: page, filter, process */

#endif /* NT_TOP_MODEL_H */
