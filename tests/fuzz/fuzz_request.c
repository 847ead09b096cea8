// SPDX-License-Identifier: GPL-2.0
// links: userspace/protocol/request.c userspace/base/text.c
/* A line from a reader of the daemon's socket: a request within its bounds, or one line of why not.
 */
#include <errno.h>
#include <string.h>
#include "fuzz.h"
#include "protocol/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nt_request request = {};
	char err[NT_REQUEST_TEXT] = "";
	/* as the server has it, with a NUL that does not count */
	char *line = fuzz_string(data, size, NT_REQUEST_MAX);
	int result;

	if (!line)
		return 0;
	result = nt_request_parse(line, size, &request, err, sizeof(err));
	FUZZ_CHECK(!result || result == -EINVAL);
	if (result) {
		fuzz_check_message(err);
	} else {
		FUZZ_CHECK(request.kind >= NT_REQUEST_SNAPSHOT &&
			   request.kind <= NT_REQUEST_HEALTH);
		FUZZ_CHECK(request.format < NT_FORMATS && request.top <= NT_REQUEST_TOP);
	}
	free(line);
	return 0;
}
