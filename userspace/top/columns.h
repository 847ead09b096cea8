/* SPDX-License-Identifier: GPL-2.0 */
/* Defines the columns of the table: which ones a screen of a given width shows, and their
 * content. */
#pragma once

#include "top/model.h"
#include "top/screen.h"

void nt_top_draw_titles(struct nt_screen *screen, int row, const struct nt_top_model *model);
void nt_top_draw_line(struct nt_screen *screen, int row, const struct nt_top_model *model,
		      const struct nt_top_line *line, bool chosen);

/* Names what the table is sorted by, such as "lost time". */
const char *nt_top_sort_name(enum nt_top_sort sort);

/* Writes "43.9ms" or "27.8h", in at most six columns up to 99999 h. */
void nt_top_duration(uint64_t us, char *out, size_t size);

/* Writes "22.6", in at most five columns up to 99999 a second. */
void nt_top_rate(double rate, char *out, size_t size);
