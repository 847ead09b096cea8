/* SPDX-License-Identifier: GPL-2.0 */
/* Not a stall, but time: which holds that were none cost most, and what to change. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "attach/counts.h"
#include "capture/processes.h"

#define NT_SLOW_SHOWN 5
#define NT_SLOW_TEXT  512

/*
 * Chooses the rows that add up to least_ns or more, the most time first. Returns how many, at most
 * NT_SLOW_SHOWN.
 */
size_t nt_slow_choose(const struct nt_counts *counts, uint64_t least_ns,
		      const struct nt_slow_row *chosen[NT_SLOW_ROWS]);

/* Returns whose they are: without a number if there are several, without a name if no write was
 * seen. */
struct nt_process nt_slow_process(const struct nt_slow_row *row);

/* Writes "java[4242]", escaped; "java" if there are several; "unknown" if no write was seen. */
void nt_slow_name(const struct nt_slow_row *row, char *out, size_t size);

/* Writes in a sentence what the bytes waited for, and what to change. */
void nt_slow_advise(const struct nt_slow_row *row, char text[NT_SLOW_TEXT]);
