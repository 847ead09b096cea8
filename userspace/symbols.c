// SPDX-License-Identifier: GPL-2.0
#include "symbols.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unwind.h"

#define DELETED " (deleted)"

/* One line of /proc/PID/maps. */
struct mapping {
	uint64_t start, end, offset;
	uint64_t inode;
	bool executable;
	char path[PATH_MAX];
};

static int parse_mapping(const char *line, struct mapping *m)
{
	char mode[8];
	int path = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %" SCNu64 " %n", &m->start,
		   &m->end, mode, &m->offset, &m->inode, &path) != 5 ||
	    !path)
		return -EINVAL;
	m->executable = strchr(mode, 'x');
	snprintf(m->path, sizeof(m->path), "%.*s", (int)strcspn(line + path, "\n"), line + path);
	return 0;
}

/* Opens the very file that is mapped: also deleted ones, also in another mount namespace. */
static int open_mapped(pid_t pid, const struct mapping *m)
{
	char path[PATH_MAX + 64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m->start,
		 m->end);
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

/* Only the files' own tables: debug files elsewhere could be asked for over the network. */
static int no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **debug_file)
{
	(void)module, (void)userdata, (void)name, (void)base;
	(void)file, (void)link, (void)crc, (void)debug_file;
	return -1;
}

/* What has to be added to the addresses of the file's headers: its load bias. */
static int load_bias(int fd, const struct mapping *m, uint64_t *bias)
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

static void report_mapping(Dwfl *dwfl, pid_t pid, const struct mapping *m)
{
	uint64_t bias;
	int fd;

	if (!m->executable || m->path[0] != '/' || !m->inode)
		return;
	fd = open_mapped(pid, m);
	if (fd < 0)
		return;
	/* what is reported takes the descriptor over */
	if (load_bias(fd, m, &bias) || !dwfl_report_elf(dwfl, m->path, m->path, fd, bias, true))
		close(fd);
}

/* Calls each() for every mapping of the process. 0 or -errno. */
static int for_each_mapping(pid_t pid, void (*each)(const struct mapping *m, void *context),
			    void *context)
{
	struct mapping *m = malloc(sizeof(*m));
	char path[32], *line = NULL;
	size_t room = 0;
	FILE *maps;

	if (!m)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps) {
		free(m);
		return -errno;
	}
	while (getline(&line, &room, maps) > 0)
		if (!parse_mapping(line, m))
			each(m, context);
	free(line);
	fclose(maps);
	free(m);
	return 0;
}

struct reporting {
	Dwfl *dwfl;
	pid_t pid;
};

static void report_each(const struct mapping *m, void *context)
{
	struct reporting *r = context;

	report_mapping(r->dwfl, r->pid, m);
}

/* The process's files, each opened through its mapping. NULL: the process is gone, or out of
 * memory. */
static Dwfl *open_process(pid_t pid)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf, /* not asked: the files are given */
		.find_debuginfo = no_debuginfo,
		.section_address = dwfl_offline_section_address,
	};
	struct reporting r = {.pid = pid};

	elf_version(EV_CURRENT);
	r.dwfl = dwfl_begin(&callbacks);
	if (!r.dwfl)
		return NULL;
	if (for_each_mapping(pid, report_each, &r) || dwfl_report_end(r.dwfl, NULL, NULL)) {
		dwfl_end(r.dwfl);
		return NULL;
	}
	return r.dwfl;
}

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

struct naming {
	struct nt_frame *frames;
	size_t n;
};

/* The module by the mapping's name, also where its file cannot be read. */
static void name_module(const struct mapping *m, void *context)
{
	struct naming *naming = context;
	size_t length = strlen(m->path), suffix = strlen(DELETED);

	if ((m->path[0] != '/' || !m->inode) && strcmp(m->path, "[vdso]"))
		return; /* heap, stack or anonymous memory: code made at run time */
	for (size_t i = 0; i < naming->n; i++) {
		struct nt_frame *frame = &naming->frames[i];

		if (frame->ip < m->start || frame->ip >= m->end || frame->module)
			continue;
		frame->offset = frame->ip - m->start + m->offset;
		frame->module = strdup(m->path);
		if (frame->module && length > suffix && !strcmp(m->path + length - suffix, DELETED))
			frame->module[length - suffix] = '\0';
	}
}

size_t nt_symbols_resolve(pid_t pid, const uint64_t *ips, size_t n,
			  const struct nt_stack_dump *dump, struct nt_frame *frames, size_t room)
{
	Dwfl *dwfl = open_process(pid);
	uint64_t unwound[NT_STACK_DEPTH];
	struct naming naming = {.frames = frames};
	size_t longer = 0;

	if (dwfl && dump && dump->sp)
		longer = nt_unwind(dwfl, pid, dump, unwound, NT_STACK_DEPTH);
	if (longer > n) {
		ips = unwound;
		n = longer;
	}
	naming.n = n < room ? n : room;
	for (size_t i = 0; i < naming.n; i++)
		frames[i] = (struct nt_frame){.ip = ips[i]};
	for_each_mapping(pid, name_module, &naming);
	for (size_t i = 0; dwfl && i < naming.n; i++)
		name_from_file(dwfl, &frames[i]);
	dwfl_end(dwfl);
	return naming.n;
}

void nt_frames_free(struct nt_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(frames[i].module);
		free(frames[i].symbol);
	}
}
