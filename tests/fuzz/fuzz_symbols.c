// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/symbols.c userspace/names/unwind.c userspace/names/mappings.c
/*
 * What a worker does with a file that a traced process chose: first the registers and the top of
 * the stack, then the file, all of it mapped at BASE.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz.h"
#include "names/symbols.h"

#define BASE        0x7f0000000000ULL
#define STACK       0x7ffc00000000ULL
#define STACK_BYTES 128
#define MAX_BYTES   65536

static void put_file(const uint8_t *data, size_t size, struct nt_mappings *mappings)
{
	struct nt_mapping *m = &mappings->list[0];

	*m = (struct nt_mapping){
		.start = BASE, .end = BASE + MAX_BYTES, .inode = 1, .path = strdup("/x (deleted)")};
	m->fd = memfd_create("fuzzed", MFD_CLOEXEC);
	FUZZ_CHECK(m->fd >= 0 && m->path);
	FUZZ_CHECK(write(m->fd, data, size) == (ssize_t)size);
	mappings->count = 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct nt_mappings mappings;
	struct nt_frame frames[NT_STACK_DEPTH];
	static struct nt_stack_dump dump;
	uint64_t ips[4];
	size_t n;

	if (size < sizeof(ips) + STACK_BYTES || size > MAX_BYTES)
		return 0;
	memcpy(ips, data, sizeof(ips));
	for (size_t i = 0; i < 4; i++)
		ips[i] = BASE + 1 + ips[i] % MAX_BYTES;
	/* all registers point into the file; rsp is not among them, sp says where the dump is */
	for (size_t i = 0; i < NT_REGS_BYTES / sizeof(ips[0]); i++)
		memcpy(dump.regs + i * sizeof(ips[0]), &ips[i % 4], sizeof(ips[0]));
	dump.sp = STACK;
	dump.size = STACK_BYTES;
	memcpy(dump.bytes, data + sizeof(ips), STACK_BYTES);
	put_file(data + sizeof(ips) + STACK_BYTES, size - sizeof(ips) - STACK_BYTES, &mappings);
	n = nt_symbols_name(1, ips, 4, &dump, &mappings, frames, NT_STACK_DEPTH);
	FUZZ_CHECK(n >= 4 && n <= NT_STACK_DEPTH);
	for (size_t i = 0; i < n; i++)
		FUZZ_CHECK(!frames[i].module || !strcmp(frames[i].module, "/x"));
	nt_frames_free(frames, n);
	nt_mappings_free(&mappings);
	return 0;
}
