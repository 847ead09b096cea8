/* SPDX-License-Identifier: GPL-2.0 */
/* Everything that we write to stderr: our own lines, and those of libbpf that the user wants. */
#pragma once

/* Writes "nagletrace: " and one line. */
void nt_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Shows libbpf's messages only with -v: it often warns of a step for which we have a fallback. */
void nt_quiet_libbpf(int verbose);
