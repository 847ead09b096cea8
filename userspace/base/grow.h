/* SPDX-License-Identifier: GPL-2.0 */
/* Gives lists in memory more room. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/*
 * Gives the list that list points to room for so many entries of each bytes. Returns 0 or -ENOMEM,
 * which leaves it as it was. Our compilers let a void * stand for any pointer.
 */
static inline int nt_resize(void *list, size_t room, size_t each)
{
	void **place = list, *resized = realloc(*place, room * each);

	if (!resized)
		return -ENOMEM;
	*place = resized;
	return 0;
}

/* Likewise doubles its room; an empty one gets room for 1,024. */
static inline int nt_grow(void *list, size_t *room, size_t each)
{
	size_t more = *room ? 2 * *room : 1024;
	int err = nt_resize(list, more, each);

	if (!err)
		*room = more;
	return err;
}
