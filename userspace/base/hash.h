/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes uthash survive a shortage of memory instead of ending the program: HASH_ADD then leaves
 * hh.tbl NULL. Makes it expand sooner: each entry that a look passes over costs a miss in the
 * cache, and of those that it finds with 10 in a bucket, the default, two to three.
 */
#ifndef NT_HASH_H
#define NT_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

#endif /* NT_HASH_H */
