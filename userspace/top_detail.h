/* SPDX-License-Identifier: GPL-2.0 */
/* Draws what covers the table: one connection with its last stall, and the help. */
#ifndef NT_TOP_DETAIL_H
#define NT_TOP_DETAIL_H

#include "top_model.h"
#include "top_screen.h"
#include "top_table.h"

void nt_top_draw_detail(struct nt_screen *screen, const struct nt_top_model *model,
			const struct nt_top_about *about);
void nt_top_draw_help(struct nt_screen *screen);

#endif /* NT_TOP_DETAIL_H */
