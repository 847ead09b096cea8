/* SPDX-License-Identifier: GPL-2.0 */
/* Keeps the stalls per second of the last minutes, a cell for each interval, and draws their
 * sparkline. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NT_TOP_CELLS     600        /* the oldest go first */
#define NT_TOP_GAP       UINT32_MAX /* the cell's rate is unknown */
#define NT_SPARKLINE_LEN (3 * NT_TOP_CELLS + 1)

struct nt_top_rates {
	uint64_t cell_ns;
	uint32_t milli[NT_TOP_CELLS]; /* stalls in 1000 s, or NT_TOP_GAP; a ring */
	size_t count, next;
	uint64_t at_ns, stalls; /* as they were when the last cell ended */
	bool begun;
	bool broken; /* nobody counted for a while */
};

void nt_top_rates_init(struct nt_top_rates *rates, uint64_t cell_ns);

/* Takes the number of stalls in all by now_ns. A smaller number than before means a new count. */
void nt_top_rates_add(struct nt_top_rates *rates, uint64_t now_ns, uint64_t stalls);

/* Marks the time from the last nt_top_rates_add() to the next one as unknown. */
void nt_top_rates_break(struct nt_top_rates *rates);

/* Return the latest cell and the largest of the last n, in stalls a second; 0 where none is
 * known. */
double nt_top_rates_now(const struct nt_top_rates *rates);
double nt_top_rates_most(const struct nt_top_rates *rates, size_t n);

/* Draws the last n cells (at most) as blocks of eight heights, scaled to the largest; a gap is
 * blank. Returns how many cells it drew. */
size_t nt_top_rates_sparkline(const struct nt_top_rates *rates, size_t n,
			      char text[NT_SPARKLINE_LEN]);
