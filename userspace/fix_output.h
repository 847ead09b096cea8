/* SPDX-License-Identifier: GPL-2.0 */
/* What `fix` writes to stdout: who reads it slowly, or not at all, keeps no signal waiting. */
#ifndef NT_FIX_OUTPUT_H
#define NT_FIX_OUTPUT_H

#include <stddef.h>
#include <stdio.h>

/* Made in memory first, for a FILE waits for who reads, whatever comes. */
struct nt_fix_output {
	FILE *file;
	char *text;
	size_t size;
};

/* Where it is to be printed; NULL: no memory. */
FILE *nt_fix_begin_output(struct nt_fix_output *output);

/*
 * Writes and frees it. err: 0, or -errno with which it was made, which is handed on; then nothing
 * is written. signals: nt_fix_watch_signals(). 0 or -errno; -EINTR: a signal came, and is left to
 * be read, while nobody read the output.
 */
int nt_fix_end_output(struct nt_fix_output *output, int err, int signals);

/* Reads the signals that came. */
void nt_fix_forget_signals(int signals);

#endif /* NT_FIX_OUTPUT_H */
