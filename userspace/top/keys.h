/* SPDX-License-Identifier: GPL-2.0 */
/* Defines what each key does. */
#pragma once

#include "top/model.h"

/* Handles a key as ncurses gives it: a byte, or KEY_…. */
void nt_top_key(struct nt_top_model *model, int key);

/* A line of help names keys and what they do; NULL follows the last. */
struct nt_top_key_help {
	const char *keys, *what;
};
extern const struct nt_top_key_help nt_top_keys_help[];

/* Returns the letter that sorts by a column. */
char nt_top_sort_key(enum nt_top_sort sort);
