/* SPDX-License-Identifier: GPL-2.0 */
/* Writes the ends of a connection. */
#ifndef NT_TUPLE_H
#define NT_TUPLE_H

#include <stdbool.h>
#include <stddef.h>
#include "bpf/nagletrace.h"

#define NT_ADDRESS_LEN 64 /* "[IPv6]:port" with its NUL */

/* Writes "127.0.0.1:8000" or "[::1]:8000". */
void nt_format_address(const struct nt_tuple *tuple, bool local, char *out, size_t size);

#endif /* NT_TUPLE_H */
