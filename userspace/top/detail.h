/* SPDX-License-Identifier: GPL-2.0 */
/* Draws the pages that cover the table: one connection with its last stall, and the help. */
#pragma once

#include "top/model.h"
#include "top/screen.h"

void nt_top_draw_detail(struct nt_screen *screen, const struct nt_top_model *model,
			const struct nt_top_about *about);
void nt_top_draw_help(struct nt_screen *screen);
