/* SPDX-License-Identifier: GPL-2.0 */
/* Writes what `nagletrace sample` found, as text or as JSON. */
#pragma once

#include <stdio.h>
#include "sample/source.h"

struct nt_sample_report {
	const struct nt_settings *settings;
	const struct nt_estimate *estimate;
	const struct nt_source *source;
	uint64_t span_ns;
	bool closing;
};

/* Writes a report and flushes out. Returns 0 or -errno. */
int nt_sample_report(FILE *out, const struct nt_sample_report *report);
