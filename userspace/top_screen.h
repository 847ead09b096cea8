/* SPDX-License-Identifier: GPL-2.0 */
/* The terminal, by ncurses: opened and always given back, and text that stays where it is put. */
#ifndef NT_TOP_SCREEN_H
#define NT_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* How text looks; colour is only ever added to another difference. */
enum nt_ink {
	NT_INK_PLAIN,
	NT_INK_BOLD,
	NT_INK_BAR,  /* reversed */
	NT_INK_KEY,  /* a letter that is a key: underlined */
	NT_INK_WARN, /* bold, and red */
	NT_INK_LOSS, /* lost time: bold, and yellow */
};

struct nt_screen {
	bool open;
	bool utf8; /* else everything is ASCII */
	bool colour;
	int rows, columns;
	void *terminal; /* of ncurses */
	int own_stderr; /* the real one, while what is said there is kept; -1 */
};

/*
 * Takes the terminal. What is written to stderr until nt_screen_close() is kept and said then. 0,
 * or -EINVAL with one line in err if the terminal cannot do this.
 */
int nt_screen_open(struct nt_screen *screen, char *err, size_t err_size);

/* Gives the terminal back as it was; to be called in any case. */
void nt_screen_close(struct nt_screen *screen);

/* Gives it back for the time that the process is stopped, and takes it again. */
void nt_screen_suspend(struct nt_screen *screen);
void nt_screen_resume(struct nt_screen *screen);

/* The terminal has another size now. */
void nt_screen_resized(struct nt_screen *screen);

/* The next key that was pressed: a byte, or KEY_… of ncurses; -1: none. */
int nt_screen_key(struct nt_screen *screen);

/* Between these, what is to be seen is put. */
void nt_screen_begin(struct nt_screen *screen);
void nt_screen_end(struct nt_screen *screen);

/*
 * Puts UTF-8 text into at most width columns from (row, column) on; what lies outside the screen is
 * cut. Returns the columns that it took.
 */
int nt_screen_put(struct nt_screen *screen, int row, int column, int width, enum nt_ink ink,
		  const char *text);

/* Likewise to the end of the line, formatted. */
int nt_screen_print(struct nt_screen *screen, int row, int column, enum nt_ink ink,
		    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A whole line of blanks. */
void nt_screen_fill(struct nt_screen *screen, int row, enum nt_ink ink);

#endif /* NT_TOP_SCREEN_H */
