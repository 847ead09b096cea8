/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes uthash survive a shortage of memory instead of ending the program: HASH_ADD then leaves
 * hh.tbl NULL.
 */
#ifndef NT_HASH_H
#define NT_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif /* NT_HASH_H */
