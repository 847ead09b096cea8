// SPDX-License-Identifier: GPL-2.0
#include "capture/waiting.h"

#include <stdlib.h>
#include <string.h>

#include "capture/stall.h"

/* Anyone may use the first half of the room; this is what each share may use of the other. */
#define MOST_OF_SHARE (NT_MOST_WAITING / 2 / 8)

bool nt_waiting_add(struct nt_waiting *w, const struct nt_record *record)
{
	uint32_t *has = &w->shares.count[nt_share_place(nt_record_share(record))];

	if (w->count == NT_MOST_WAITING ||
	    (w->count >= NT_MOST_WAITING / 2 && *has >= MOST_OF_SHARE))
		return false;
	if (!w->records)
		w->records = malloc(NT_MOST_WAITING * sizeof(*w->records));
	if (!w->records)
		return false;
	w->records[(w->first + w->count++) % NT_MOST_WAITING] = *record;
	++*has;
	return true;
}

const struct nt_record *nt_waiting_first(const struct nt_waiting *w)
{
	return w->count ? &w->records[w->first] : NULL;
}

void nt_waiting_drop(struct nt_waiting *w)
{
	w->shares.count[nt_share_place(nt_record_share(&w->records[w->first]))]--;
	w->first = (w->first + 1) % NT_MOST_WAITING;
	if (!--w->count)
		nt_waiting_clear(w);
}

void nt_waiting_clear(struct nt_waiting *w)
{
	free(w->records);
	memset(w, 0, sizeof(*w));
}
