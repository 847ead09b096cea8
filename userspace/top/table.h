/* SPDX-License-Identifier: GPL-2.0 */
/* Draws what `nagletrace top` shows: heading, sparkline, table. */
#pragma once

#include "top/model.h"
#include "top/screen.h"

/* Draws the table, and sets in the model how many lines fit. */
void nt_top_draw_table(struct nt_screen *screen, struct nt_top_model *model,
		       const struct nt_top_about *about);
