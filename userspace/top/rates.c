// SPDX-License-Identifier: GPL-2.0
#include "top/rates.h"

#include <string.h>

#include "base/clock.h"

void nt_top_rates_init(struct nt_top_rates *rates, uint64_t cell_ns)
{
	memset(rates, 0, sizeof(*rates));
	rates->cell_ns = cell_ns;
}

static void push(struct nt_top_rates *rates, uint32_t milli)
{
	rates->milli[rates->next] = milli;
	rates->next = (rates->next + 1) % NT_TOP_CELLS;
	if (rates->count < NT_TOP_CELLS)
		rates->count++;
}

static uint32_t rate_of(uint64_t stalls, uint64_t ns)
{
	double milli = stalls * 1000.0 * NT_SECOND_NS / ns;

	return milli < NT_TOP_GAP - 1 ? milli + 0.5 : NT_TOP_GAP - 1;
}

void nt_top_rates_add(struct nt_top_rates *rates, uint64_t now_ns, uint64_t stalls)
{
	uint64_t passed = now_ns - rates->at_ns, cells;
	uint32_t milli = NT_TOP_GAP;

	if (rates->begun && passed < rates->cell_ns / 2 && stalls >= rates->stalls)
		return; /* its stalls are the next cell's */
	if (rates->begun) {
		if (stalls >= rates->stalls && !rates->broken && passed)
			milli = rate_of(stalls - rates->stalls, passed);
		cells = (passed + rates->cell_ns / 2) / rates->cell_ns;
		if (!cells)
			cells = 1;
		for (uint64_t i = 0; i < cells && i < NT_TOP_CELLS; i++)
			push(rates, milli);
	}
	rates->begun = true;
	rates->broken = false;
	rates->at_ns = now_ns;
	rates->stalls = stalls;
}

void nt_top_rates_break(struct nt_top_rates *rates)
{
	rates->broken = true;
}

/* Returns the i-th of the last n cells. */
static uint32_t cell(const struct nt_top_rates *rates, size_t n, size_t i)
{
	return rates->milli[(rates->next + NT_TOP_CELLS - n + i) % NT_TOP_CELLS];
}

double nt_top_rates_now(const struct nt_top_rates *rates)
{
	uint32_t milli = rates->count ? cell(rates, 1, 0) : NT_TOP_GAP;

	return milli == NT_TOP_GAP ? 0 : milli / 1000.0;
}

static uint32_t most_of(const struct nt_top_rates *rates, size_t n)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n; i++)
		if (cell(rates, n, i) != NT_TOP_GAP && cell(rates, n, i) > most)
			most = cell(rates, n, i);
	return most;
}

double nt_top_rates_most(const struct nt_top_rates *rates, size_t n)
{
	return most_of(rates, n < rates->count ? n : rates->count) / 1000.0;
}

size_t nt_top_rates_sparkline(const struct nt_top_rates *rates, size_t n,
			      char text[NT_SPARKLINE_LEN])
{
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	uint32_t most;

	if (n > rates->count)
		n = rates->count;
	most = most_of(rates, n);
	text[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		uint32_t milli = cell(rates, n, i);
		const char *block = " ";

		/* the lowest block means none, so that the least rate above it stands out */
		if (milli == 0)
			block = blocks[0];
		else if (milli != NT_TOP_GAP)
			block = blocks[1 + (uint64_t)(milli - 1) * 7 / most];
		strcat(text, block);
	}
	return n;
}
