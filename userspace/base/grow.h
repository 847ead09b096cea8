/* SPDX-License-Identifier: GPL-2.0 */
/* Grows lists that have no known end. */
#ifndef NT_GROW_H
#define NT_GROW_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/*
 * Doubles the room (entries of each bytes) of the list that list points to; an empty one gets room
 * for 1,024. Returns 0 or -ENOMEM, which leaves both as they were. Our compilers let a void *
 * stand for any pointer.
 */
static inline int nt_grow(void *list, size_t *room, size_t each)
{
	void **place = list;
	size_t more = *room ? 2 * *room : 1024;
	void *grown = realloc(*place, more * each);

	if (!grown)
		return -ENOMEM;
	*place = grown;
	*room = more;
	return 0;
}

#endif
