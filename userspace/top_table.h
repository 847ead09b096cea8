/* SPDX-License-Identifier: GPL-2.0 */
/* Draws what `nagletrace top` shows: heading, sparkline, table. */
#ifndef NT_TOP_TABLE_H
#define NT_TOP_TABLE_H

#include "top_model.h"
#include "top_screen.h"

/* Who tells, and what is wrong with that just now ("": nothing). */
struct nt_top_about {
	char host[NT_TOP_NAME];
	bool own; /* traced by this process; else the daemon tells */
	const char *trouble;
};

/* Draws the page that is open; tells the model how many lines fit. */
void nt_top_draw(struct nt_screen *screen, struct nt_top_model *model,
		 const struct nt_top_about *about);

/* "12s", "5m12s", "3h12m", "2d3h" */
void nt_top_elapsed(uint64_t us, char *out, size_t size);

#endif /* NT_TOP_TABLE_H */
