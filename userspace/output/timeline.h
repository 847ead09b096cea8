/* SPDX-License-Identifier: GPL-2.0 */
/* Functions of struct nt_writer that write the lines of a timeline, as text or JSON. */
#pragma once

#include "output/writer.h"

int nt_text_timeline_line(const struct nt_writer *writer, FILE *out, const struct nt_line *line);
int nt_json_timeline_line(const struct nt_writer *writer, FILE *out, const struct nt_line *line);

/* Writes a stall, or with --all-holds a hold, among the events that led to it. */
int nt_text_timeline_stall(const struct nt_writer *writer, FILE *out, const struct nt_stall *stall,
			   struct nt_stacks *stacks);
