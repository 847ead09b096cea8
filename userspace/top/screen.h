/* SPDX-License-Identifier: GPL-2.0 */
/* Drives the terminal through ncurses: opens it, always restores it, and clips text to its
 * place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <termios.h>
#include "base/error.h"

/* Styles of text. Colour only adds to another difference. */
enum nt_ink {
	NT_INK_PLAIN,
	NT_INK_BOLD,
	NT_INK_BAR,  /* reversed */
	NT_INK_KEY,  /* underlined: a letter that is a key */
	NT_INK_WARN, /* bold, and red */
	NT_INK_LOSS, /* bold and yellow: lost time */
};

struct nt_screen {
	bool open;
	bool utf8; /* false: everything is ASCII */
	bool colour;
	int rows, columns;
	void *terminal;       /* ncurses' terminal */
	FILE *out;            /* what ncurses writes to */
	struct termios modes; /* of the terminal, before ncurses set its own */
	int own_stderr;       /* the real stderr while its text is kept; -1: none */
};

/* Takes the terminal. Text written to stderr until nt_screen_close() is kept and printed then. */
bool nt_screen_open(struct nt_screen *screen, struct nt_error *error);

/* Restores the terminal; the caller calls it in any case. */
void nt_screen_close(struct nt_screen *screen);

/* Restore the terminal while the process is stopped, and take it again. */
void nt_screen_suspend(struct nt_screen *screen);
void nt_screen_resume(struct nt_screen *screen);

/* Adapts to the terminal's new size. */
void nt_screen_resized(struct nt_screen *screen);

/* Returns the next key that was pressed: a byte, or KEY_… of ncurses; -1: none. */
int nt_screen_key(struct nt_screen *screen);

/* Begin and end a picture; text is put between them. */
void nt_screen_begin(struct nt_screen *screen);
void nt_screen_end(struct nt_screen *screen);

/* Puts UTF-8 text into at most width columns from (row, column) on, and cuts what lies outside the
 * screen. Returns how many columns it took. */
int nt_screen_put(struct nt_screen *screen, int row, int column, int width, enum nt_ink ink,
		  const char *text);

/* Puts formatted text that may go to the end of the line. */
int nt_screen_print(struct nt_screen *screen, int row, int column, enum nt_ink ink,
		    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Fills a whole line with blanks. */
void nt_screen_fill(struct nt_screen *screen, int row, enum nt_ink ink);
