/* SPDX-License-Identifier: GPL-2.0 */
/* Stalls a second over the last minutes, a cell for each interval, and their sparkline. */
#ifndef NT_TOP_RATES_H
#define NT_TOP_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NT_TOP_CELLS     600        /* kept, the oldest first to go */
#define NT_TOP_GAP       UINT32_MAX /* of a cell: not known */
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

/* So many stalls had been counted in all by now_ns. Fewer than before: it is counted anew. */
void nt_top_rates_add(struct nt_top_rates *rates, uint64_t now_ns, uint64_t stalls);

/* From the last nt_top_rates_add() to the next one nothing is known. */
void nt_top_rates_break(struct nt_top_rates *rates);

/* The latest cell, and the largest of the last n, in stalls a second; 0 where nothing is known. */
double nt_top_rates_now(const struct nt_top_rates *rates);
double nt_top_rates_most(const struct nt_top_rates *rates, size_t n);

/* The last n cells (at most) as blocks of eight heights, to scale up to the largest; a gap is
 * blank. Returns how many. */
size_t nt_top_rates_sparkline(const struct nt_top_rates *rates, size_t n,
			      char text[NT_SPARKLINE_LEN]);

#endif /* NT_TOP_RATES_H */
