// SPDX-License-Identifier: GPL-2.0
#include "top/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

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

	if (row || data->count >= NT_TOP_MOST_ROWS)
		return row;
	/* allocate all at once: rows stay in place, and unused ones take no memory */
	if (make_room(data, NT_TOP_MOST_ROWS))
		return NULL;
	row = &data->rows[data->count++];
	memset(row, 0, sizeof(*row));
	row->key = *key;
	return row;
}

bool nt_top_row_shown(const struct nt_top_row *row)
{
	return row->stalls && !row->missed;
}

void nt_top_row_process(const struct nt_top_row *row, size_t columns, char *out, size_t size)
{
	nt_format_named(row->key.pid ? row->comm : NT_TOP_UNKNOWN, row->key.pid, columns, out,
			size);
}
