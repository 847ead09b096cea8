/* SPDX-License-Identifier: GPL-2.0 */
/* Why a command cannot do what it was asked for. */
#pragma once

#include <stdbool.h>

/* The exit codes. */
enum nt_exit {
	NT_EXIT_OK = 0,
	NT_EXIT_FAILED = 1, /* at run time */
	NT_EXIT_USAGE = 2,
	NT_EXIT_KERNEL = 3, /* this kernel lacks what we need */
	NT_EXIT_PERMISSION = 4,
	NT_EXIT_STALLS = 5, /* found as many as --fail-on-stall says */
};

/* A function that takes one and returns a bool has filled it if it returns false. */
struct nt_error {
	enum nt_exit exit; /* with which the command ends */
	char text[512];    /* one line that names the cause and the remedy */
};

/* Fills *error; returns false. */
bool nt_error_set(struct nt_error *error, enum nt_exit exit, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Returns true if err is 0; else (-errno) fills *error with "cannot start: " and the cause. */
bool nt_started(int err, struct nt_error *error);

/* Writes the line to stderr; returns the exit code. */
enum nt_exit nt_error_log(const struct nt_error *error);
