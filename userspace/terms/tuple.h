/* SPDX-License-Identifier: GPL-2.0 */
/* Writes the ends of a connection, and tells sockets apart. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "bpf/nagletrace.h"

#define NT_ADDRESS_LEN 64 /* "[IPv6]:port" with its NUL */

/* Writes "127.0.0.1:8000" or "[::1]:8000". */
void nt_format_address(const struct nt_tuple *tuple, bool local, char *out, size_t size);

/* Which socket, as the key of a hash. */
struct nt_socket_key {
	__u64 sk;
	struct nt_tuple tuple; /* the kernel uses memory of sockets again */
	__u32 reserved;
};

static inline struct nt_socket_key nt_socket_key_of(const struct nt_end *end)
{
	return (struct nt_socket_key){.sk = end->sk, .tuple = end->tuple};
}
