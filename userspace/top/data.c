// SPDX-License-Identifier: GPL-2.0
#include "top/data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/grow.h"

/* Stalls may add as many rows again that no snapshot has yet. */
#define MOST_ROWS (2 * NT_TOP_ROWS)

void nt_top_data_init(struct nt_top_data *data, uint64_t cell_ns)
{
	memset(data, 0, sizeof(*data));
	nt_top_rates_init(&data->rates, cell_ns);
}

void nt_top_data_free(struct nt_top_data *data)
{
	free(data->rows);
	data->rows = NULL;
	data->count = data->room = 0;
}

static int make_room(struct nt_top_data *data, size_t rows)
{
	if (rows <= data->room)
		return 0;
	if (nt_resize(&data->rows, rows, sizeof(*data->rows)))
		return -ENOMEM;
	data->room = rows;
	return 0;
}

int nt_top_data_copy(struct nt_top_data *copy, const struct nt_top_data *data)
{
	struct nt_top_row *rows;
	size_t room;

	if (make_room(copy, data->count))
		return -ENOMEM;
	rows = copy->rows;
	room = copy->room;
	*copy = *data;
	copy->rows = rows;
	copy->room = room;
	if (data->count)
		memcpy(rows, data->rows, data->count * sizeof(*rows));
	return 0;
}

struct nt_top_row *nt_top_data_find(const struct nt_top_data *data, const struct nt_top_key *key)
{
	for (size_t i = 0; i < data->count; i++)
		if (!memcmp(&data->rows[i].key, key, sizeof(*key)))
			return &data->rows[i];
	return NULL;
}

struct nt_top_row *nt_top_data_get(struct nt_top_data *data, const struct nt_top_key *key)
{
	struct nt_top_row *row = nt_top_data_find(data, key);

	if (row || data->count >= MOST_ROWS)
		return row;
	/* allocate all at once: rows stay in place, and unused ones take no memory */
	if (make_room(data, MOST_ROWS))
		return NULL;
	row = &data->rows[data->count++];
	memset(row, 0, sizeof(*row));
	row->key = *key;
	return row;
}

void nt_top_row_count(struct nt_top_row *row, uint64_t now_ns, uint64_t stalls)
{
	const struct nt_top_mark now = {.ns = now_ns, .stalls = stalls};

	row->stalls = stalls;
	if (!row->older.ns || stalls < row->older.stalls) {
		row->older = row->newer = now; /* a new window began: keep the rate */
		return;
	}
	if (now_ns > row->older.ns)
		row->rate = (double)(stalls - row->older.stalls) * NT_SECOND_NS /
			    (now_ns - row->older.ns);
	if (now_ns >= row->newer.ns + NT_TOP_RATE_NS) {
		row->older = row->newer;
		row->newer = now;
	}
}

static bool is_stale(const struct nt_top_row *row)
{
	return row->missed >= 2;
}

static bool is_missed(const struct nt_top_row *row)
{
	return row->missed > 0;
}

/* Says whether a stall added the row and no snapshot has had it yet. */
static bool is_untold(const struct nt_top_row *row)
{
	return row->missed && !row->stalls;
}

static void drop(struct nt_top_data *data, bool (*which)(const struct nt_top_row *row))
{
	size_t kept = 0;

	for (size_t i = 0; i < data->count; i++) {
		if (which(&data->rows[i]))
			continue;
		if (kept != i)
			data->rows[kept] = data->rows[i];
		kept++;
	}
	data->count = kept;
}

void nt_top_data_age(struct nt_top_data *data)
{
	for (size_t i = 0; i < data->count; i++)
		data->rows[i].missed++;
}

bool nt_top_data_expect(struct nt_top_data *data, const struct nt_top_key *key)
{
	struct nt_top_row *row = nt_top_data_find(data, key);

	if (row)
		row->missed = 0;
	return row;
}

void nt_top_data_sweep(struct nt_top_data *data)
{
	drop(data, is_stale);
}

void nt_top_data_make_way(struct nt_top_data *data, size_t rows)
{
	if (data->count + rows > MOST_ROWS)
		drop(data, is_untold);
	if (data->count + rows > MOST_ROWS)
		drop(data, is_missed);
}

bool nt_top_row_shown(const struct nt_top_row *row)
{
	return row->stalls && !row->missed;
}

bool nt_top_row_frame(struct nt_top_row *row, const char *name)
{
	size_t at = strlen(row->where);

	if (at + strlen(name) + sizeof(" ← ") > sizeof(row->where))
		return false;
	snprintf(row->where + at, sizeof(row->where) - at, "%s%s", at ? " ← " : "", name);
	return true;
}

void nt_top_row_process(const struct nt_top_row *row, size_t columns, char *out, size_t size)
{
	nt_format_named(row->key.pid ? row->comm : NT_TOP_UNKNOWN, row->key.pid, columns, out,
			size);
}
