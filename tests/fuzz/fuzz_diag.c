// SPDX-License-Identifier: GPL-2.0
// links: userspace/sample/diag_message.c
/* What comes over a netlink socket, to which any process may write: sockets that hold less than a
 * segment, or an error. */
#include <errno.h>
#include <string.h>
#include "fuzz.h"
#include "sample/diag_message.h"

static void take(void *context, const struct nt_sampled *sampled)
{
	FUZZ_CHECK(sampled->bytes && sampled->bytes < sampled->mss);
	FUZZ_CHECK(sampled->reason && sampled->reason < NT_HOLD_REASONS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	__u32 request = 1;
	char *datagram = malloc(size ? size : 1);
	int result;

	if (!datagram)
		return 0;
	memcpy(datagram, data, size);
	result = nt_diag_parse(datagram, size, request, take, NULL);
	FUZZ_CHECK(result <= 1 && result >= -4095);
	free(datagram);
	return 0;
}
