/* SPDX-License-Identifier: GPL-2.0 */
/* uthash, told not to end the program when memory is short: then HASH_ADD leaves hh.tbl NULL. */
#ifndef NT_HASH_H
#define NT_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif /* NT_HASH_H */
