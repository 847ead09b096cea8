// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/mappings.c
/* /proc/PID/maps of any bytes: the names in it are the traced process's. */
#include <string.h>
#include "fuzz.h"
#include "names/mappings.h"

#define N_ADDRESSES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct nt_mappings mappings;
	uint64_t addresses[N_ADDRESSES];
	FILE *maps;

	if (!size)
		return 0;
	for (size_t i = 0; i < N_ADDRESSES; i++) /* one in each 64th of what a process may have */
		addresses[i] = i << 43;
	maps = fmemopen((void *)data, size, "r");
	FUZZ_CHECK(maps);
	FUZZ_CHECK(!nt_mappings_read(maps, addresses, N_ADDRESSES, &mappings));
	fclose(maps);
	FUZZ_CHECK(mappings.count <= NT_MAPPINGS_MOST && mappings.count <= mappings.lines);
	for (size_t i = 0; i < mappings.count; i++) {
		const struct nt_mapping *m = &mappings.list[i];

		FUZZ_CHECK(m->start < m->end && m->fd == -1 && m->path && !strchr(m->path, '\n'));
	}
	nt_mappings_free(&mappings);
	return 0;
}
