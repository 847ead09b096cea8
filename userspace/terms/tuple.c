// SPDX-License-Identifier: GPL-2.0
#include "terms/tuple.h"

#include <arpa/inet.h>
#include <stdio.h>

void nt_format_address(const struct nt_tuple *tuple, bool local, char *out, size_t size)
{
	const void *address = local ? tuple->local_addr : tuple->remote_addr;
	unsigned int port = local ? tuple->local_port : tuple->remote_port;
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(tuple->family, address, host, sizeof(host));
	snprintf(out, size, tuple->family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, port);
}
