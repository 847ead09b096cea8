// SPDX-License-Identifier: GPL-2.0
#include "symbols.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELETED " (deleted)"

/* One line of /proc/PID/maps. */
struct mapping {
	uint64_t start, end, offset;
	uint64_t inode;
	char path[PATH_MAX];
};

static int parse_mapping(const char *line, struct mapping *m)
{
	int path = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64 " %n", &m->start, &m->end,
		   &m->offset, &m->inode, &path) != 4 || !path)
		return -EINVAL;
	snprintf(m->path, sizeof(m->path), "%.*s", (int)strcspn(line + path, "\n"), line + path);
	return 0;
}

/* Opens the very file that is mapped: also deleted ones, also in another mount namespace. */
static int open_mapped(pid_t pid, const struct mapping *m)
{
	char path[PATH_MAX + 64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m->start, m->end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	/* not permitted everywhere: by name, if the name still means that file */
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, m->path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &st) || st.st_ino != m->inode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The address, as the file's own headers count, of a place in the file. */
static int address_in_file(Elf *elf, uint64_t offset, uint64_t *address)
{
	size_t n;

	if (elf_getphdrnum(elf, &n))
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf, i, &phdr) || phdr.p_type != PT_LOAD)
			continue;
		if (offset >= phdr.p_offset && offset - phdr.p_offset < phdr.p_filesz) {
			*address = offset - phdr.p_offset + phdr.p_vaddr;
			return 0;
		}
	}
	return -ENOENT;
}

/* Only the file's own tables: debug files elsewhere could be asked for over the network. */
static int no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **debug_file)
{
	(void)module, (void)userdata, (void)name, (void)base;
	(void)file, (void)link, (void)crc, (void)debug_file;
	return -1;
}

/* Names the frame from the file, which stays the caller's. */
static void name_from_file(struct nt_frame *frame, const struct mapping *m, int fd)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf, /* not asked: the file is given */
		.find_debuginfo = no_debuginfo,
		.section_address = dwfl_offline_section_address,
	};
	uint64_t address;
	GElf_Off into;
	GElf_Sym sym;
	Dwfl_Module *module;
	const char *symbol;
	GElf_Addr bias;
	Dwfl *dwfl;
	Elf *elf;

	dwfl = dwfl_begin(&callbacks);
	if (!dwfl)
		return;
	/* what is reported takes the descriptor over */
	module = dwfl_report_elf(dwfl, m->path, m->path, dup(fd), 0, true);
	dwfl_report_end(dwfl, NULL, NULL);
	elf = module ? dwfl_module_getelf(module, &bias) : NULL;
	if (elf && !address_in_file(elf, frame->offset, &address)) {
		/* a return address may lie behind the function's last instruction */
		symbol = dwfl_module_addrinfo(module, address - 1 + bias, &into, &sym, NULL, NULL, NULL);
		frame->offset = address;
		if (symbol)
			frame->symbol = strdup(symbol);
	}
	dwfl_end(dwfl);
}

static void name_frame(pid_t pid, struct nt_frame *frame, const struct mapping *m)
{
	bool file = m->path[0] == '/' && m->inode;
	size_t length = strlen(m->path), suffix = strlen(DELETED);
	int fd;

	if (!file && strcmp(m->path, "[vdso]"))
		return; /* heap, stack or anonymous memory: code made at run time */
	frame->offset = frame->ip - m->start + m->offset;
	frame->module = strdup(m->path);
	if (!frame->module || !file)
		return;
	if (length > suffix && !strcmp(m->path + length - suffix, DELETED))
		frame->module[length - suffix] = '\0';
	fd = open_mapped(pid, m);
	if (fd < 0)
		return;
	name_from_file(frame, m, fd);
	close(fd);
}

int nt_symbols_resolve(pid_t pid, const uint64_t *ips, size_t n, struct nt_frame *frames)
{
	struct mapping *m;
	char path[32];
	char *line = NULL;
	size_t room = 0;
	FILE *maps;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct nt_frame){.ip = ips[i]};
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return -errno;
	m = malloc(sizeof(*m));
	elf_version(EV_CURRENT);
	while (m && getline(&line, &room, maps) > 0) {
		if (parse_mapping(line, m))
			continue;
		for (size_t i = 0; i < n; i++)
			if (ips[i] >= m->start && ips[i] < m->end)
				name_frame(pid, &frames[i], m);
	}
	free(line);
	fclose(maps);
	if (!m)
		return -ENOMEM;
	free(m);
	return 0;
}

void nt_frames_free(struct nt_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(frames[i].module);
		free(frames[i].symbol);
	}
}
