// SPDX-License-Identifier: GPL-2.0
// links: userspace/top/columns.c userspace/top/keys.c userspace/top/model.c userspace/top/data.c
// links: userspace/top/rates.c userspace/base/text.c
#include <stdio.h>
#include <string.h>
#include "unit.h"
#include "top/columns.h"

#define COLUMNS 80

/* What the line of a screen shows; what is no ASCII as one mark. */
static char drawn[COLUMNS + 1];

void nt_screen_fill(struct nt_screen *screen, int row, enum nt_ink ink)
{
	(void)row, (void)ink;
	memset(drawn, ' ', screen->columns);
}

int nt_screen_put(struct nt_screen *screen, int row, int column, int width, enum nt_ink ink,
		  const char *text)
{
	int n = 0;

	(void)row, (void)ink;
	for (; *text && n < width && column + n < screen->columns; text++)
		if ((*text & 0xc0) != 0x80)
			drawn[column + n++] = *text & 0x80 ? '?' : *text;
	return n;
}

/* The line of a process with one connection. */
static const char *line_of(uint64_t stalls, uint64_t excess_us)
{
	struct nt_screen screen = {.rows = 24, .columns = COLUMNS};
	struct nt_top_model model = {.view = NT_TOP_PROCESSES};
	struct nt_top_row row = {.key.pid = 42, .comm = "java"};
	struct nt_top_line line = {.row = &row,
				   .connections = 1,
				   .stalls = stalls,
				   .excess_us = excess_us,
				   .max_us = 1000};

	nt_top_draw_line(&screen, 0, &model, &line, false);
	return drawn;
}

static void expect(uint64_t stalls, uint64_t excess_ms, const char *expected)
{
	const char *line = line_of(stalls, excess_ms * 1000);

	if (!strstr(line, expected))
		fail_msg("no \"%s\" in \"%s\"", expected, line);
}

TEST(small_numbers_are_written_out)
{
	expect(0, 0, "     1      0    0us 1.00ms ");
	expect(999999, 99999499, "     1 999999 99999s 1.00ms ");
}

TEST(large_numbers_keep_their_magnitude)
{
	expect(1000000, 1000, "     1  1.00M  1.00s ");
	expect(1500000, 1000, "     1  1.50M  1.00s ");
	expect(9994999, 1000, "     1  9.99M  1.00s ");
	expect(9995000, 1000, "     1  10.0M  1.00s ");
	expect(150000000, 1000, "     1   150M  1.00s ");
	expect(999500000, 1000, "     1  1.00G  1.00s ");
	expect(UINT64_MAX, 1000, "     1  18.4E  1.00s ");
}

TEST(long_times_keep_their_unit)
{
	expect(1, 99999500, "     1      1  27.8h 1.00ms ");
	expect(1, 100200000, "     1      1  27.8h 1.00ms ");
	expect(1, 359820000, "     1      1   100h 1.00ms ");
	expect(1, 359000000000, "     1      1 99722h 1.00ms ");
}

UNIT_MAIN()
