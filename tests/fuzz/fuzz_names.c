// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/wire.c userspace/names/symbols.c userspace/names/unwind.c userspace/names/mappings.c
// links: userspace/base/text.c
/* What the process answers that names frames, and that hostile files may have taken over. */
#include <errno.h>
#include <string.h>
#include "fuzz.h"
#include "names/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[NT_NAMES_REPLY_BYTES];
	struct nt_frame frames[NT_STACK_DEPTH];
	struct nt_names_reply head;
	int result = nt_names_decode(data, size, &head, frames);

	FUZZ_CHECK(!result || result == -EBADMSG);
	if (result)
		return 0;
	FUZZ_CHECK(head.n <= NT_STACK_DEPTH && head.why < NT_UNNAMED_REASONS);
	for (size_t i = 0; i < head.n; i++) {
		FUZZ_CHECK(!frames[i].module || strlen(frames[i].module) <= NT_NAME_BYTES);
		FUZZ_CHECK(!frames[i].symbol || strlen(frames[i].symbol) <= NT_NAME_BYTES);
	}
	/* all of it was read, and nothing stood behind it */
	if (size <= sizeof(head) + head.n * sizeof(struct nt_names_frame) + NT_NAMES_BYTES)
		FUZZ_CHECK(nt_names_encode(&head, frames, head.n, again) == size);
	nt_frames_free(frames, head.n);
	return 0;
}
