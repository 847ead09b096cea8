// SPDX-License-Identifier: GPL-2.0
#include "top/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include <curses.h>
#include "base/streams.h"
#include "base/text.h"

#define MAX_COLUMNS  512
#define ESCAPE_MS    100 /* for the rest of a key's sequence, also over a slow line */
#define MAX_REPLAYED 4096

/* ---- what the terminal can do ---- */

/* Says whether text is UTF-8. A host often lacks the locale that ssh brings along, so C.UTF-8
 * stands in. */
static bool locale_is_utf8(void)
{
	static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	if (setlocale(LC_CTYPE, ""))
		return !strcmp(nl_langinfo(CODESET), "UTF-8");
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = getenv(variables[i]);

		if (!value || !*value)
			continue;
		return (strcasestr(value, "UTF-8") || strcasestr(value, "utf8")) &&
		       setlocale(LC_CTYPE, "C.UTF-8");
	}
	return false;
}

/* Says whether the font lacks the blocks of a sparkline and arrows. */
static bool font_is_small(void)
{
	const char *term = getenv("TERM");

	return term &&
	       (!strncmp(term, "linux", 5) || !strncmp(term, "vt", 2) || !strncmp(term, "ansi", 4));
}

static void start_colours(struct nt_screen *screen)
{
	const char *no_color = getenv("NO_COLOR");

	screen->colour = has_colors() && !(no_color && *no_color);
	if (!screen->colour)
		return;
	start_color();
	use_default_colors();
	init_pair(NT_INK_WARN, COLOR_RED, -1);
	init_pair(NT_INK_LOSS, COLOR_YELLOW, -1);
}

/* ---- stderr, which is the same terminal ---- */

static void keep_stderr(struct nt_screen *screen)
{
	int kept;

	screen->own_stderr = -1;
	if (!isatty(STDERR_FILENO))
		return;
	fflush(stderr);
	kept = memfd_create("stderr", MFD_CLOEXEC);
	if (kept < 0)
		return;
	screen->own_stderr = dup(STDERR_FILENO);
	if (screen->own_stderr >= 0)
		dup2(kept, STDERR_FILENO);
	close(kept);
}

static void say_what_was_kept(struct nt_screen *screen)
{
	char text[MAX_REPLAYED];
	ssize_t n;

	if (screen->own_stderr < 0)
		return;
	fflush(stderr);
	n = pread(STDERR_FILENO, text, sizeof(text), 0);
	dup2(screen->own_stderr, STDERR_FILENO);
	close(screen->own_stderr);
	screen->own_stderr = -1;
	if (n > 0)
		fwrite(text, 1, n, stderr);
}

/* ---- opening and closing ---- */

static bool refuse(struct nt_error *error, const char *what)
{
	const char *term = getenv("TERM");
	char shown[NT_ESCAPED_LEN(32)];

	nt_escape(term ? term : "", 32, shown, sizeof(shown));
	return nt_error_set(error, NT_EXIT_USAGE, "TERM=%s: %s; set TERM, for example TERM=xterm",
			    shown, what);
}

static void close_out(struct nt_screen *screen)
{
	if (screen->out)
		fclose(screen->out);
	screen->out = NULL;
}

static void begin(struct nt_screen *screen)
{
	keep_stderr(screen);
	nt_streams_begin_library();
	cbreak();
	noecho();
	nonl();
	intrflush(stdscr, FALSE); /* else Ctrl-C drops output that restores the terminal */
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(ESCAPE_MS);
	curs_set(0);
	start_colours(screen);
	nt_screen_resized(screen);
	nt_streams_end_library();
}

bool nt_screen_open(struct nt_screen *screen, struct nt_error *error)
{
	screen->own_stderr = -1;
	screen->utf8 = locale_is_utf8() && !font_is_small();
	screen->out = nt_streams_for_library();
	if (!screen->out || tcgetattr(STDOUT_FILENO, &screen->modes)) {
		nt_error_set(error, NT_EXIT_USAGE, "cannot use the terminal: %s", strerror(errno));
		close_out(screen);
		return false;
	}
	nt_streams_begin_library();
	screen->terminal = newterm(NULL, screen->out, stdin);
	nt_streams_end_library();
	if (!screen->terminal) {
		close_out(screen);
		return refuse(error, "no terminal that is known here");
	}
	screen->open = true;
	if (!tigetstr("cup")) {
		nt_screen_close(screen);
		return refuse(error, "this terminal cannot place its cursor");
	}
	begin(screen);
	return true;
}

/* Gives the terminal back. One that takes no output gets its modes back. */
static void leave(struct nt_screen *screen)
{
	nt_streams_begin_library();
	endwin();
	fflush(screen->out);
	nt_streams_end_library();
	tcsetattr(STDOUT_FILENO, TCSANOW, &screen->modes);
}

void nt_screen_close(struct nt_screen *screen)
{
	if (!screen->open)
		return;
	screen->open = false;
	leave(screen);
	delscreen(screen->terminal);
	close_out(screen);
	say_what_was_kept(screen);
}

void nt_screen_suspend(struct nt_screen *screen)
{
	if (screen->open)
		leave(screen);
}

void nt_screen_resume(struct nt_screen *screen)
{
	if (!screen->open)
		return;
	nt_streams_begin_library();
	reset_prog_mode();
	nt_screen_resized(screen);
	curs_set(0);
	nt_streams_end_library();
}

void nt_screen_resized(struct nt_screen *screen)
{
	struct winsize size;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
	getmaxyx(stdscr, screen->rows, screen->columns);
	clearok(stdscr, TRUE); /* terminals keep different parts of the old content */
}

int nt_screen_key(struct nt_screen *screen)
{
	int key;

	if (!screen->open)
		return -1;
	nt_streams_begin_library(); /* getch() may draw */
	do
		key = getch();
	while (key == KEY_RESIZE); /* nobody pressed that key */
	nt_streams_end_library();
	return key == ERR ? -1 : key;
}

/* ---- drawing ---- */

void nt_screen_begin(struct nt_screen *screen)
{
	erase();
}

void nt_screen_end(struct nt_screen *screen)
{
	move(screen->rows - 1, screen->columns - 1);
	nt_streams_begin_library();
	refresh();
	nt_streams_end_library();
}

static attr_t attributes(const struct nt_screen *screen, enum nt_ink ink)
{
	switch (ink) {
	case NT_INK_BOLD:
		return A_BOLD;
	case NT_INK_BAR:
		return A_REVERSE;
	case NT_INK_KEY:
		return A_BOLD | A_UNDERLINE;
	case NT_INK_WARN:
	case NT_INK_LOSS:
		return A_BOLD | (screen->colour ? COLOR_PAIR(ink) : 0);
	default:
		return A_NORMAL;
	}
}

/* Converts text to wide characters of at most width columns; an invalid character becomes a
 * mark. */
static int widen(const char *text, wchar_t *wide, int width, int *columns)
{
	mbstate_t state = {0};
	int n = 0, used = 0;

	while (*text && n < MAX_COLUMNS - 1) {
		wchar_t c;
		size_t bytes = mbrtowc(&c, text, strlen(text), &state);
		int wants;

		if (bytes == 0 || bytes > strlen(text)) {
			memset(&state, 0, sizeof(state));
			bytes = 1;
			c = L'?';
		}
		wants = wcwidth(c);
		if (wants < 0) {
			c = L'?';
			wants = 1;
		}
		if (used + wants > width)
			break;
		wide[n++] = c;
		used += wants;
		text += bytes;
	}
	wide[n] = L'\0';
	*columns = used;
	return n;
}

static int put_ascii(int width, const char *text)
{
	char ascii[4 * MAX_COLUMNS]; /* holds UTF-8 first; each character becomes one byte */
	int n;

	snprintf(ascii, sizeof(ascii), "%s", text);
	nt_to_ascii(ascii);
	n = strlen(ascii);
	for (int i = 0; i < n; i++)
		if (ascii[i] < ' ' || ascii[i] > '~')
			ascii[i] = '?';
	addnstr(ascii, width);
	return n < width ? n : width;
}

int nt_screen_put(struct nt_screen *screen, int row, int column, int width, enum nt_ink ink,
		  const char *text)
{
	wchar_t wide[MAX_COLUMNS];
	int n;

	if (width > screen->columns - column)
		width = screen->columns - column;
	if (width > MAX_COLUMNS - 1)
		width = MAX_COLUMNS - 1;
	if (row < 0 || row >= screen->rows || column < 0 || width <= 0)
		return 0;
	attrset(attributes(screen, ink));
	move(row, column);
	if (screen->utf8) {
		n = widen(text, wide, width, &width);
		addnwstr(wide, n);
	} else {
		width = put_ascii(width, text);
	}
	attrset(A_NORMAL);
	return width;
}

int nt_screen_print(struct nt_screen *screen, int row, int column, enum nt_ink ink,
		    const char *format, ...)
{
	char text[4 * MAX_COLUMNS];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return nt_screen_put(screen, row, column, screen->columns, ink, text);
}

void nt_screen_fill(struct nt_screen *screen, int row, enum nt_ink ink)
{
	if (row < 0 || row >= screen->rows)
		return;
	move(row, 0);
	attrset(attributes(screen, ink));
	for (int i = 0; i < screen->columns; i++)
		addch(' ');
	attrset(A_NORMAL);
}
