// SPDX-License-Identifier: GPL-2.0
#include "names/symbols.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "names/unwind.h"

#define DELETED " (deleted)"

/* ---- the files to open ---- */

/* On arm64 a return address may be signed, in bits that an address of a process never uses. */
#if defined(__aarch64__)
#define ADDRESS_BITS 48
#else
#define ADDRESS_BITS 64
#endif

static uint64_t plain_address(uint64_t word)
{
	return ADDRESS_BITS < 64 ? word & ((1ULL << (ADDRESS_BITS % 64)) - 1) : word;
}

static size_t take_words(const uint8_t *bytes, size_t size, uint64_t *words)
{
	size_t n = size / sizeof(*words);

	memcpy(words, bytes, n * sizeof(*words));
	return n;
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * The unwinder takes every return address from a register or from a word of the dump, so the stack
 * goes only through mappings into which one of these points. A process has hundreds of files
 * mapped, but its stack goes through a few.
 */
int nt_symbols_open(pid_t pid, const uint64_t *ips, size_t n, const struct nt_stack_dump *dump,
		    struct nt_mappings *mappings)
{
	uint64_t words[NT_STACK_DEPTH + (NT_REGS_BYTES + NT_STACK_BYTES) / sizeof(uint64_t)];
	size_t count = n < NT_STACK_DEPTH ? n : NT_STACK_DEPTH;

	memcpy(words, ips, count * sizeof(*words));
	if (dump && dump->sp) {
		size_t size = dump->size < NT_STACK_BYTES ? dump->size : NT_STACK_BYTES;

		count += take_words(dump->regs, NT_REGS_BYTES, words + count);
		count += take_words(dump->bytes, size, words + count);
	}
	for (size_t i = 0; i < count; i++)
		words[i] = plain_address(words[i]);
	qsort(words, count, sizeof(*words), by_address);
	return nt_mappings_open(pid, words, count, mappings);
}

/* ---- the files ---- */

/* Uses only the files' own tables: libdw could ask for separate debug files over the network. */
static int no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **debug_file)
{
	(void)module, (void)userdata, (void)name, (void)base;
	(void)file, (void)link, (void)crc, (void)debug_file;
	return -1;
}

/*
 * Computes the load bias: the difference between an address in memory and the one in the file's
 * headers.
 */
static int load_bias(int fd, const struct nt_mapping *m, uint64_t *bias)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	size_t n = 0;
	int err = -ENOENT;

	if (!elf || elf_getphdrnum(elf, &n))
		n = 0;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf, i, &phdr) || phdr.p_type != PT_LOAD)
			continue;
		/* a mapping begins at the page in which the segment does */
		if (m->offset <= phdr.p_offset + phdr.p_filesz &&
		    m->offset + 65536 > phdr.p_offset && phdr.p_flags & PF_X) {
			*bias = m->start - (phdr.p_vaddr - phdr.p_offset + m->offset);
			err = 0;
			break;
		}
	}
	elf_end(elf);
	return err;
}

/*
 * Gives libdw the file of the ith mapping once, though two parts of it may be mapped as code: at
 * the second time dwfl_report_elf() takes both for stale.
 */
static void report_mapping(Dwfl *dwfl, struct nt_mappings *mappings, size_t i)
{
	struct nt_mapping *m = &mappings->list[i];

	if (m->fd < 0 || load_bias(m->fd, m, &m->bias))
		return;
	for (const struct nt_mapping *before = mappings->list; before < m; before++)
		if (before->reported && before->inode == m->inode && before->device == m->device &&
		    before->bias == m->bias)
			return;
	/* libdw takes the descriptor over */
	m->reported = dwfl_report_elf(dwfl, m->path, m->path, m->fd, m->bias, true);
	if (m->reported)
		m->fd = -1;
}

/* Returns NULL when memory runs out. */
static Dwfl *open_dwfl(struct nt_mappings *mappings)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf, /* never called: we give libdw the files */
		.find_debuginfo = no_debuginfo,
		.section_address = dwfl_offline_section_address,
	};
	Dwfl *dwfl;

	elf_version(EV_CURRENT);
	dwfl = dwfl_begin(&callbacks);
	for (size_t i = 0; dwfl && i < mappings->count; i++)
		report_mapping(dwfl, mappings, i);
	if (dwfl && dwfl_report_end(dwfl, NULL, NULL)) {
		dwfl_end(dwfl);
		return NULL;
	}
	return dwfl;
}

/* ---- the names ---- */

static void name_from_file(Dwfl *dwfl, struct nt_frame *frame)
{
	/* a return address may lie behind the function's last instruction */
	Dwfl_Module *module = dwfl_addrmodule(dwfl, frame->ip - 1);
	const char *symbol;
	GElf_Off into;
	GElf_Sym sym;
	Dwarf_Addr bias;

	if (!module || !dwfl_module_getelf(module, &bias))
		return;
	frame->offset = frame->ip - bias;
	symbol = dwfl_module_addrinfo(module, frame->ip - 1, &into, &sym, NULL, NULL, NULL);
	if (symbol)
		frame->symbol = strdup(symbol);
}

/* A return address may lie behind the last instruction. */
static bool leads_into(uint64_t ip, const struct nt_mapping *m)
{
	return ip - 1 >= m->start && ip - 1 < m->end;
}

/*
 * Returns how many of these addresses, one at least, precede the first that leads to no code: in a
 * program without frame pointers the kernel takes other words of the stack for return addresses.
 */
static size_t code_only(const uint64_t *ips, size_t n, const struct nt_mappings *mappings)
{
	if (!mappings->count || mappings->full)
		return n; /* we cannot know */
	for (size_t i = 1; i < n; i++) {
		size_t at = 0;

		while (at < mappings->count && !leads_into(ips[i], &mappings->list[at]))
			at++;
		if (at == mappings->count)
			return i;
	}
	return n;
}

/* Names the module by its mapping, even if its file cannot be read. */
static void name_module(const struct nt_mapping *m, struct nt_frame *frames, size_t n)
{
	size_t length = strlen(m->path), suffix = strlen(DELETED);

	if ((m->path[0] != '/' || !m->inode) && strcmp(m->path, "[vdso]"))
		return; /* heap, stack or anonymous memory: code made at run time */
	for (size_t i = 0; i < n; i++) {
		struct nt_frame *frame = &frames[i];

		if (!leads_into(frame->ip, m) || frame->module)
			continue;
		frame->offset = frame->ip - m->start + m->offset;
		frame->module = strdup(m->path);
		if (frame->module && length > suffix && !strcmp(m->path + length - suffix, DELETED))
			frame->module[length - suffix] = '\0';
	}
}

size_t nt_symbols_name(pid_t pid, const uint64_t *ips, size_t n, const struct nt_stack_dump *dump,
		       struct nt_mappings *mappings, struct nt_frame *frames, size_t room)
{
	Dwfl *dwfl = open_dwfl(mappings);
	uint64_t unwound[NT_STACK_DEPTH];
	size_t longer = 0;

	n = code_only(ips, n, mappings);
	if (dwfl && dump && dump->sp)
		longer = nt_unwind(dwfl, pid, dump, unwound, NT_STACK_DEPTH);
	if (longer > n) {
		ips = unwound;
		n = longer;
	}
	n = n < room ? n : room;
	for (size_t i = 0; i < n; i++)
		frames[i] = (struct nt_frame){.ip = ips[i]};
	for (size_t i = 0; i < mappings->count; i++)
		name_module(&mappings->list[i], frames, n);
	for (size_t i = 0; dwfl && i < n; i++)
		name_from_file(dwfl, &frames[i]);
	dwfl_end(dwfl);
	return n;
}

void nt_frames_free(struct nt_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(frames[i].module);
		free(frames[i].symbol);
	}
}
