// SPDX-License-Identifier: GPL-2.0
#include "top/ladder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define TIME_COLUMNS 8
#define GAP          26 /* columns between the life lines */
#define MAX_STEPS    4
#define MAX_US       1000000000000LL /* eleven days: longer durations are cut */

/* A step is something that happened at a time; it has a line of its own. */
struct step {
	int64_t us;
	int arrow; /* 1: from sender to receiver, -1: back, 0: none */
	char carries[NT_TOP_WORD];
	char left[NT_TOP_NAME], right[NT_TOP_NAME]; /* beside the life lines */
	bool holds, releases;                       /* the sender's span begins, ends */
	bool pends, acknowledges;                   /* the receiver's */
	bool timeless;                              /* its time is unknown */
};

struct ladder {
	struct step steps[MAX_STEPS];
	size_t n, rows[MAX_STEPS];
	size_t height, width, sender_at, receiver_at;
	bool receiver_seen, sender_seen;
	uint32_t grid[NT_LADDER_LINES][NT_LADDER_COLUMNS];
};

/* ---- what happened ---- */

static struct step *add(struct ladder *l, int64_t us, int arrow)
{
	struct step *step = &l->steps[l->n++];

	memset(step, 0, sizeof(*step));
	step->us = us;
	step->arrow = arrow;
	return step;
}

static void name_bytes(struct step *step, uint64_t bytes)
{
	if (bytes)
		snprintf(step->carries, sizeof(step->carries), " %" PRIu64 " B ", bytes);
	else
		snprintf(step->carries, sizeof(step->carries), " data ");
}

static void add_hold(struct ladder *l, const struct nt_top_stall *stall)
{
	struct step *step = add(l, 0, 0);

	step->holds = true;
	if (!stall->bytes) {
		snprintf(step->left, sizeof(step->left), "waits: %s", stall->reason);
		return;
	}
	snprintf(step->left, sizeof(step->left), "%" PRIu64 " B held: %s", stall->bytes,
		 !strcmp(stall->reason, "nagle")      ? "Nagle"
		 : !strcmp(stall->reason, "cork")     ? "TCP_CORK"
		 : !strcmp(stall->reason, "msg_more") ? "MSG_MORE"
						      : stall->reason);
}

/* Adds the release of the held bytes, and their way. */
static void add_release(struct ladder *l, const struct nt_top_stall *stall)
{
	struct step *step = add(l, stall->duration_us, 1);

	step->releases = true;
	name_bytes(step, stall->bytes);
	snprintf(step->left, sizeof(step->left), "%s",
		 !strcmp(stall->release, "timer") ? "probe timer fires" : "released");
}

static void add_ack(struct ladder *l, int64_t us, const struct nt_top_stall *stall)
{
	struct step *step = add(l, us, -1);

	step->acknowledges = true;
	snprintf(step->carries, sizeof(step->carries), " ACK ");
	if (!strcmp(stall->ack_release, "timer"))
		snprintf(step->right, sizeof(step->right), "timer fires");
	else if (stall->ack_release[0])
		snprintf(step->right, sizeof(step->right), "sent by %s", stall->ack_release);
	else
		snprintf(step->right, sizeof(step->right), "late (not seen)");
}

static void add_arrival(struct ladder *l, int64_t us, uint64_t bytes)
{
	struct step *step = add(l, us, 1);

	step->pends = true;
	name_bytes(step, bytes);
	snprintf(step->right, sizeof(step->right), "ACK delayed");
}

/* Shows both ends. If their order is unknown, the hold is taken to end as the ACK goes out. */
static void draw_both(struct ladder *l, const struct nt_top_stall *stall)
{
	int64_t from = stall->ordered ? stall->ack_after_us
				      : (int64_t)stall->duration_us - (int64_t)stall->ack_us;

	l->sender_seen = l->receiver_seen = true;
	if (from <= 0)
		add_arrival(l, from, stall->in_flight);
	add_hold(l, stall);
	if (from > 0)
		add_arrival(l, from, stall->in_flight);
	add_ack(l, from + (int64_t)stall->ack_us, stall);
	add_release(l, stall);
}

static void draw_sender(struct ladder *l, const struct nt_top_stall *stall)
{
	bool corked = !strcmp(stall->release, "timer");

	l->sender_seen = true;
	if (!corked)
		name_bytes(add(l, 0, 1), stall->in_flight);
	add_hold(l, stall);
	if (!corked)
		add_ack(l, stall->duration_us, stall);
	add_release(l, stall);
}

static void draw_receiver(struct ladder *l, const struct nt_top_stall *stall)
{
	struct step *step;

	l->receiver_seen = true;
	add_arrival(l, 0, stall->ack_bytes);
	add_ack(l, stall->ack_us, stall);
	step = add(l, stall->ack_us, 1);
	step->timeless = true;
	name_bytes(step, 0);
	snprintf(step->left, sizeof(step->left), "waited (not seen)");
}

/* ---- where it is drawn ---- */

/* Places each step on a line of its own, scaled by time as far as the lines allow. */
static void place(struct ladder *l)
{
	int64_t begin = l->steps[0].us, span = 0;
	size_t last = l->height - 1;

	for (size_t i = 0; i < l->n; i++) {
		if (l->steps[i].us < begin)
			begin = l->steps[i].us;
		if (l->steps[i].us - begin > span)
			span = l->steps[i].us - begin;
	}
	for (size_t i = 0; i < l->n; i++) {
		size_t least = i ? l->rows[i - 1] + 1 : 1, most = last - (l->n - 1 - i);
		size_t row = 1;

		if (span)
			row += (double)(l->steps[i].us - begin) / span * (last - 1) + 0.5;
		l->rows[i] = row < least ? least : row > most ? most : row;
		l->steps[i].us -= begin;
	}
}

static void set(struct ladder *l, size_t row, size_t column, uint32_t character)
{
	if (row < l->height && column < l->width)
		l->grid[row][column] = character;
}

/* Writes UTF-8 text, cut to columns. */
static void write_at(struct ladder *l, size_t row, size_t column, size_t columns, const char *text)
{
	for (size_t n; *text && columns--; text += n ? n : 1) {
		uint32_t character;

		n = nt_utf8_decode(text, strlen(text), &character);
		set(l, row, column++, n ? character : '?');
	}
}

static void draw_arrow(struct ladder *l, size_t row, const struct step *step)
{
	size_t from = l->sender_at + 1, to = l->receiver_at - 1, width = nt_columns(step->carries);

	for (size_t at = from; at <= to; at++)
		set(l, row, at, U'─');
	if (step->arrow > 0)
		set(l, row, to, U'▶');
	else
		set(l, row, from, U'◀');
	write_at(l, row, from + (to - from + 1 - width) / 2, to - from, step->carries);
}

static void write_left(struct ladder *l, size_t row, const char *text)
{
	size_t room = l->sender_at - TIME_COLUMNS - 3, width = nt_columns(text);

	write_at(l, row, l->sender_at - 1 - (width < room ? width : room), room, text);
}

static void write_right(struct ladder *l, size_t row, const char *text)
{
	write_at(l, row, l->receiver_at + 2, l->width - l->receiver_at - 2, text);
}

static void draw_step(struct ladder *l, size_t i)
{
	const struct step *step = &l->steps[i];
	size_t row = l->rows[i];
	struct nt_duration lasted = nt_duration(step->us * 1000);
	const char *time = step->timeless ? "1 RTT on" : lasted.text;

	write_at(l, row, nt_columns(time) < TIME_COLUMNS ? TIME_COLUMNS - nt_columns(time) : 0,
		 TIME_COLUMNS, time);
	if (step->arrow)
		draw_arrow(l, row, step);
	write_left(l, row, step->left);
	write_right(l, row, step->right);
}

/* Draws a life line, heavy from the step that begins its span to the one that ends it. */
static void draw_life(struct ladder *l, size_t column, bool seen, size_t from, size_t to)
{
	for (size_t row = 1; row < l->height; row++)
		set(l, row, column, row >= from && row <= to ? U'┃' : seen ? U'│' : U'┆');
}

/* Writes a span's duration at its middle, on a line without other text. */
static void name_span(struct ladder *l, bool left, const char *what, uint64_t us, size_t from,
		      size_t to)
{
	char text[48];

	if (to < from + 2)
		return;
	snprintf(text, sizeof(text), "%s %s", what, nt_duration(us * 1000).text);
	for (size_t row = (from + to) / 2; row < to; row++) {
		size_t next = left ? l->sender_at - 2 : l->receiver_at + 2;

		if (l->grid[row][next])
			continue;
		if (left)
			write_left(l, row, text);
		else
			write_right(l, row, text);
		return;
	}
}

/* Writes a name over its life line. */
static void write_name(struct ladder *l, size_t column, const char *name)
{
	char text[2 * NT_TOP_NAME];
	size_t width;

	snprintf(text, sizeof(text), "%s", name);
	nt_shorten(text, GAP - 2);
	width = nt_columns(text);
	write_at(l, 0, column > width / 2 ? column - width / 2 : 0, width, text);
}

static void draw(struct ladder *l, const struct nt_top_stall *stall)
{
	size_t held[2] = {l->height, 0}, pending[2] = {l->height, 0};

	for (size_t i = 0; i < l->n; i++) {
		if (l->steps[i].holds)
			held[0] = l->rows[i];
		if (l->steps[i].releases)
			held[1] = l->rows[i];
		if (l->steps[i].pends)
			pending[0] = l->rows[i];
		if (l->steps[i].acknowledges)
			pending[1] = l->rows[i];
	}
	draw_life(l, l->sender_at, l->sender_seen, held[0], held[1]);
	draw_life(l, l->receiver_at, l->receiver_seen, pending[0], pending[1]);
	for (size_t i = 0; i < l->n; i++)
		draw_step(l, i);
	if (l->sender_seen)
		name_span(l, true, "held", stall->duration_us, held[0], held[1]);
	if (l->receiver_seen)
		name_span(l, false, "pending", stall->ack_us, pending[0], pending[1]);
}

/* ---- as text ---- */

static void print_line(const struct ladder *l, size_t row, char *out)
{
	size_t end = l->width;

	while (end && !l->grid[row][end - 1])
		end--;
	for (size_t i = 0; i < end; i++)
		out += nt_utf8_encode(out, l->grid[row][i] ? l->grid[row][i] : ' ');
	*out = '\0';
}

static void limit(struct nt_top_stall *stall)
{
	if (stall->duration_us > MAX_US)
		stall->duration_us = MAX_US;
	if (stall->ack_us > MAX_US)
		stall->ack_us = MAX_US;
	if (stall->ack_after_us > MAX_US)
		stall->ack_after_us = MAX_US;
	if (stall->ack_after_us < -MAX_US)
		stall->ack_after_us = -MAX_US;
}

/* Has an ACK whose time is not known leave as the hold ends, which it ended. */
static void end_unseen_ack(struct nt_top_stall *stall)
{
	int64_t until_us = (int64_t)stall->duration_us - stall->ack_after_us;

	stall->ack_release[0] = '\0';
	if (stall->ordered && until_us > (int64_t)stall->ack_us)
		stall->ack_us = until_us;
}

size_t nt_text_ladder(const struct nt_top_stall *told, const char *sender, const char *receiver,
		      size_t width, size_t height, char lines[NT_LADDER_LINES][NT_LADDER_BYTES])
{
	struct ladder l = {.width = width < NT_LADDER_COLUMNS ? width : NT_LADDER_COLUMNS,
			   .height = height < NT_LADDER_LINES ? height : NT_LADDER_LINES};
	struct nt_top_stall stall = *told;

	if (!stall.known || l.width < NT_LADDER_LEAST_COLUMNS || l.height < NT_LADDER_LEAST_LINES)
		return 0;
	limit(&stall);
	if (stall.locked)
		end_unseen_ack(&stall);
	if (stall.held && stall.pending)
		draw_both(&l, &stall);
	else if (stall.held)
		draw_sender(&l, &stall);
	else if (stall.pending)
		draw_receiver(&l, &stall);
	else
		return 0;
	l.sender_at = TIME_COLUMNS + 2 + (l.width - TIME_COLUMNS - 2 - GAP) / 2;
	l.receiver_at = l.sender_at + GAP;
	place(&l);
	draw(&l, &stall);
	write_name(&l, l.sender_at, sender ? sender : "sender, not here");
	write_name(&l, l.receiver_at, receiver ? receiver : "receiver, not here");
	for (size_t row = 0; row < l.height; row++)
		print_line(&l, row, lines[row]);
	return l.height;
}
