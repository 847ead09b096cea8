// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/symbols.c userspace/names/unwind.c userspace/names/mappings.c -ldl
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit.h"
#include "names/symbols.h"

static __attribute__((noinline, used)) int a_static_function(int n)
{
	return n + getpid();
}

/* As a worker does: first what takes privileges, then what is dangerous. */
static size_t resolve_all(pid_t pid, const uint64_t *ips, size_t n, struct nt_frame *frames)
{
	struct nt_mappings mappings;
	size_t named;

	nt_symbols_open(pid, ips, n, NULL, &mappings);
	named = nt_symbols_name(pid, ips, n, NULL, &mappings, frames, n);
	nt_mappings_free(&mappings);
	return named;
}

/* Resolves one address a little inside a function, as a return address is. */
static struct nt_frame resolve(pid_t pid, void *function)
{
	uint64_t ip = (uint64_t)function + 4;
	struct nt_frame frame;

	assert_int_equal(resolve_all(pid, &ip, 1, &frame), 1);
	assert_int_equal(frame.ip, ip);
	return frame;
}

TEST(a_static_function_of_the_program_is_named)
{
	struct nt_frame f = resolve(getpid(), a_static_function);

	assert_non_null(f.module);
	assert_non_null(strstr(f.module, "test_symbols"));
	assert_string_equal(f.symbol, "a_static_function");
	nt_frames_free(&f, 1);
}

TEST(a_function_of_a_stripped_library_is_named_by_its_dynamic_table)
{
	struct nt_frame f = resolve(getpid(), dlsym(RTLD_NEXT, "getppid"));

	assert_non_null(strstr(f.module, "libc"));
	assert_string_equal(f.symbol, "getppid");
	nt_frames_free(&f, 1);
}

static char directory[] = "/tmp/nt-symbols-XXXXXX";
static char library[64];

static int build_library(void **state)
{
	char command[256];

	if (!mkdtemp(directory))
		return -1;
	snprintf(library, sizeof(library), "%s/lib.so", directory);
	snprintf(command, sizeof(command),
		 "cc -O1 -shared -fPIC -s -o %s tests/unit/symbols_helper.c", library);
	return system(command);
}

static int remove_library(void **state)
{
	unlink(library);
	return rmdir(directory);
}

TEST(what_has_no_name_has_module_and_offset)
{
	void *handle = dlopen(library, RTLD_NOW);
	uint64_t exported, ips[2];
	struct nt_frame f[2];

	assert_non_null(handle);
	exported = (uint64_t)dlsym(handle, "exported_function");
	ips[0] = exported + 1;
	ips[1] = exported - 4; /* inside hidden_function, just before it */
	assert_int_equal(resolve_all(getpid(), ips, 2, f), 2);
	assert_string_equal(f[0].symbol, "exported_function");
	assert_string_equal(f[1].module, library);
	assert_null(f[1].symbol);
	assert_int_equal(f[0].offset - f[1].offset, 5);
	nt_frames_free(f, 2);
	dlclose(handle);
}

TEST(a_file_that_is_mapped_in_parts_is_named_in_each)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	uint64_t apart = (uint64_t)dlsym(RTLD_NEXT, "strfry") & -page;
	struct nt_frame f[2];
	uint64_t ips[] = {(uint64_t)dlsym(RTLD_NEXT, "getppid") + 4,
			  (uint64_t)dlsym(RTLD_NEXT, "strfry") + 4};

	/* what no dump contains is a mapping of its own, VM_DONTDUMP */
	assert_int_equal(madvise((void *)apart, page, MADV_DONTDUMP), 0);
	assert_int_equal(resolve_all(getpid(), ips, 2, f), 2);
	madvise((void *)apart, page, MADV_DODUMP);
	assert_string_equal(f[0].symbol, "getppid");
	assert_string_equal(f[1].symbol, "strfry");
	nt_frames_free(f, 2);
}

TEST(a_deleted_file_is_still_read)
{
	char copy[80], command[200];
	struct nt_frame f;
	void *handle;

	if (geteuid()) {
		print_message("skipped: /proc/PID/map_files needs root\n");
		skip();
	}
	snprintf(copy, sizeof(copy), "%s/deleted.so", directory);
	snprintf(command, sizeof(command), "cp %s %s", library, copy);
	assert_int_equal(system(command), 0);
	handle = dlopen(copy, RTLD_NOW);
	assert_non_null(handle);
	unlink(copy);
	f = resolve(getpid(), dlsym(handle, "exported_function"));
	assert_string_equal(f.module, copy);
	assert_string_equal(f.symbol, "exported_function");
	nt_frames_free(&f, 1);
	dlclose(handle);
}

/* The child sees the library under a name that means nothing outside its mount namespace. */
TEST(a_process_in_another_mount_namespace_is_looked_into)
{
	int ready[2], rc = -1;
	uint64_t address = 0;
	struct nt_frame f;
	pid_t child;

	if (geteuid()) {
		print_message("skipped: a mount namespace needs root\n");
		skip();
	}
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		void *handle;

		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount(directory, "/mnt", NULL, MS_BIND, NULL))
			_exit(1);
		handle = dlopen("/mnt/lib.so", RTLD_NOW);
		address = handle ? (uint64_t)dlsym(handle, "exported_function") : 0;
		rc = write(ready[1], &address, sizeof(address));
		pause();
		_exit(rc != sizeof(address));
	}
	close(ready[1]);
	rc = read(ready[0], &address, sizeof(address));
	close(ready[0]);
	assert_int_equal(rc, sizeof(address));
	assert_true(address);
	f = resolve(child, (void *)address);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* /proc shows it from the root of that namespace, which in a chroot is not ours */
	assert_non_null(strstr(f.module, "/mnt/lib.so"));
	assert_string_equal(f.symbol, "exported_function");
	nt_frames_free(&f, 1);
}

TEST(a_stack_ends_where_a_word_leads_to_no_code)
{
	uint64_t code = (uint64_t)a_static_function + 4;
	uint64_t ips[] = {code, code, (uint64_t)directory + 1, code};
	struct nt_frame f[4];

	assert_int_equal(resolve_all(getpid(), ips, 4, f), 2);
	assert_string_equal(f[1].symbol, "a_static_function");
	nt_frames_free(f, 2);
}

TEST(code_made_at_run_time_has_its_address_only)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nt_frame f = resolve(getpid(), code);

	assert_null(f.module);
	assert_null(f.symbol);
	nt_frames_free(&f, 1);
	munmap(code, 4096);
}

TEST(of_a_process_that_is_gone_the_addresses_stay)
{
	uint64_t ip = 4096;
	struct nt_frame f;
	pid_t child = fork();

	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
	assert_int_equal(resolve_all(child, &ip, 1, &f), 1);
	assert_int_equal(f.ip, 4096);
	assert_null(f.module);
	nt_frames_free(&f, 1);
}

int main(int argc, char **argv)
{
	return unit_main(argc, argv, NULL, NULL, build_library, remove_library);
}
