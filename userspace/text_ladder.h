/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One stall as a picture: two life lines, time downwards, what was held and what was put off
 * drawn to scale.
 */
#ifndef NT_TEXT_LADDER_H
#define NT_TEXT_LADDER_H

#include "top_data.h"

#define NT_LADDER_COLUMNS 100 /* drawn at most */
#define NT_LADDER_LINES   24
#define NT_LADDER_BYTES   (4 * NT_LADDER_COLUMNS + 1)

/* With less than this there is no picture. */
#define NT_LADDER_LEAST_COLUMNS 60
#define NT_LADDER_LEAST_LINES   6

/*
 * Draws a stall between two processes, named as the life lines shall be; NULL for one that is not
 * known. Fills lines (UTF-8) of at most width columns, and returns how many: at most height, 0
 * where there is nothing to draw or no room.
 */
size_t nt_text_ladder(const struct nt_top_stall *stall, const char *sender, const char *receiver,
		      size_t width, size_t height, char lines[NT_LADDER_LINES][NT_LADDER_BYTES]);

#endif /* NT_TEXT_LADDER_H */
