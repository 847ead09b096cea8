/* SPDX-License-Identifier: GPL-2.0 */
/* Draws one stall as a picture: two life lines, time running down, the hold and the pending ACK to
 * scale. */
#pragma once

#include "top/data.h"

#define NT_LADDER_COLUMNS 100 /* the picture is at most so wide */
#define NT_LADDER_LINES   24
#define NT_LADDER_BYTES   (4 * NT_LADDER_COLUMNS + 1)

/* A smaller area gets no picture. */
#define NT_LADDER_LEAST_COLUMNS 60
#define NT_LADDER_LEAST_LINES   6

/*
 * Draws a stall between two processes, with these names on the life lines; NULL for an unknown
 * process. Fills lines (UTF-8) of at most width columns. Returns how many lines it filled: at most
 * height, 0 where there is nothing to draw or no room.
 */
size_t nt_text_ladder(const struct nt_top_stall *stall, const char *sender, const char *receiver,
		      size_t width, size_t height, char lines[NT_LADDER_LINES][NT_LADDER_BYTES]);
