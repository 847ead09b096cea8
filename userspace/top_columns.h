/* SPDX-License-Identifier: GPL-2.0 */
/* The columns of the table: which there are in so many columns of the screen, and what is in them.
 */
#ifndef NT_TOP_COLUMNS_H
#define NT_TOP_COLUMNS_H

#include "top_model.h"
#include "top_screen.h"

void nt_top_draw_titles(struct nt_screen *screen, int row, const struct nt_top_model *model);
void nt_top_draw_line(struct nt_screen *screen, int row, const struct nt_top_model *model,
		      const struct nt_top_line *line, bool chosen);

/* "lost time", as what the table is sorted by. */
const char *nt_top_sort_name(enum nt_top_sort sort);

/* "43.9ms", "27.8h": at most six columns up to 99999 h. */
void nt_top_duration(uint64_t us, char *out, size_t size);

/* "22.6": at most five columns up to 99999 a second. */
void nt_top_rate(double rate, char *out, size_t size);

#endif /* NT_TOP_COLUMNS_H */
