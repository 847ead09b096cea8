/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes uthash survive a shortage of memory instead of ending the program: HASH_ADD then leaves
 * hh.tbl NULL. Makes it expand sooner: where a bucket may have 10 entries, the default, a look
 * passes over two to three, and each costs a miss in the cache.
 */
#ifndef NT_HASH_H
#define NT_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

#endif /* NT_HASH_H */
