// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/mappings.c
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit.h"
#include "names/mappings.h"

static struct nt_mappings found;

static void read_lines(const char *lines, const uint64_t *addresses, size_t n)
{
	FILE *maps = fmemopen((void *)lines, strlen(lines), "r");

	assert_non_null(maps);
	assert_int_equal(nt_mappings_read(maps, addresses, n, &found), 0);
	fclose(maps);
}

TEST(of_many_lines_those_of_code_are_taken_that_an_address_points_into)
{
	static const uint64_t addresses[] = {0xfff, 0x3000, 0x4fff, 0x9000};
	static const char lines[] =
		"1000-2000 r-xp 00000000 fd:01 11                      /not/hit\n"
		"2000-3000 r-xp 00000000 fd:01 12                      /hit/at its end\n"
		"3000-4000 r-xp 00001000 103:02 4294967297             /hit/at its begin (deleted)\n"
		"4000-5000 rw-p 00000000 00:00 0 \n"
		"6000-7000 r-xp 00000000 00:00 0                       [vdso]\n"
		"8fff-ffffffffffffffff rwxs 00000000 00:05 1           /x\n";

	read_lines(lines, addresses, 4);
	assert_int_equal(found.lines, 6);
	assert_int_equal(found.count, 3);
	assert_string_equal(found.list[0].path, "/hit/at its end");
	assert_string_equal(found.list[1].path, "/hit/at its begin (deleted)");
	assert_int_equal(found.list[1].start, 0x3000);
	assert_int_equal(found.list[1].end, 0x4000);
	assert_int_equal(found.list[1].offset, 0x1000);
	assert_true(found.list[1].inode == 4294967297ULL);
	assert_int_equal(found.list[1].device, makedev(0x103, 2));
	assert_string_equal(found.list[2].path, "/x");
	assert_int_equal(found.list[2].fd, -1);
	nt_mappings_free(&found);
}

TEST(lines_of_another_form_are_passed_over)
{
	static const uint64_t address = 0x1800;
	static const char lines[] = "\n"
				    "nonsense\n"
				    "1000-2000\n"
				    "1000-2000 r-xp\n"
				    "1000-2000 r-xp 0 fd:01\n"
				    "1000-2000 r-xp 0 fd 01 11 /x\n"
				    "1000 2000 r-xp 0 fd:01 11 /x\n"
				    "2000-1000 r-xp 0 fd:01 11 /x\n"
				    " 1000-2000 r-xp 0 fd:01 11 /x\n"
				    "-1000-2000 r-xp 0 fd:01 11 /x\n"
				    "1000-2000 r-xp 0 fd:01 11";

	read_lines(lines, &address, 1);
	assert_int_equal(found.count, 0);
	assert_int_equal(found.lines, 11);
	read_lines("", &address, 1);
	assert_int_equal(found.lines, 0);
}

TEST(more_than_there_is_room_for_are_left_out_and_told)
{
	static uint64_t addresses[NT_MAPPINGS_MOST + 1];
	static char lines[(NT_MAPPINGS_MOST + 1) * 64];

	for (size_t i = 0; i <= NT_MAPPINGS_MOST; i++) {
		addresses[i] = 0x1000 + i * 0x2000;
		snprintf(lines + strlen(lines), 64, "%" PRIx64 "-%" PRIx64 " r-xp 0 0:0 1 /x\n",
			 addresses[i], addresses[i] + 0x1000);
	}
	read_lines(lines, addresses, NT_MAPPINGS_MOST);
	assert_int_equal(found.count, NT_MAPPINGS_MOST);
	assert_false(found.full);
	nt_mappings_free(&found);
	read_lines(lines, addresses, NT_MAPPINGS_MOST + 1);
	assert_int_equal(found.count, NT_MAPPINGS_MOST);
	assert_true(found.full);
	nt_mappings_free(&found);
}

/* Maps a page of the file executable in this process. Returns MAP_FAILED if that is not allowed. */
static void *map(const char *path)
{
	int fd = open(path, O_RDONLY);
	void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	return page;
}

/*
 * Looks for what is mapped at an address within the page. The page's first address would also hit a
 * mapping that happens to end there.
 */
static void open_mapping(const void *page)
{
	const uint64_t address = (uint64_t)page + 16;

	assert_int_equal(nt_mappings_open(getpid(), &address, 1, &found), 0);
	assert_int_equal(found.count, 1);
}

TEST(what_is_mapped_is_opened_for_reading_and_is_that_file)
{
	char path[] = "/tmp/nt-mappings-XXXXXX", bytes[4096] = "";
	int fd = mkstemp(path);
	struct stat mine, its;
	void *page;

	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(fstat(fd, &mine), 0);
	page = map(path);
	assert_ptr_not_equal(page, MAP_FAILED);
	open_mapping(page);
	assert_true(found.list[0].fd >= 0);
	assert_int_equal(fstat(found.list[0].fd, &its), 0);
	assert_true(mine.st_dev == its.st_dev && mine.st_ino == its.st_ino);
	assert_int_equal(fcntl(found.list[0].fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	nt_mappings_free(&found);
	munmap(page, 4096);
	unlink(path);
	close(fd);
}

TEST(a_device_is_not_opened)
{
	void *page = map("/dev/zero");

	if (page == MAP_FAILED) {
		print_message("skipped: no code may be in /dev here\n");
		skip();
	}
	open_mapping(page);
	assert_string_equal(found.list[0].path, "/dev/zero");
	assert_int_equal(found.list[0].fd, -1);
	nt_mappings_free(&found);
	munmap(page, 4096);
}

/* Starts a process that has what we have mapped, and another root directory. */
static pid_t start_in(const char *root)
{
	int ends[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chroot(root) || write(ends[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	return child;
}

/* Without these two, /proc/PID/map_files is closed, and a file is looked for by its name. */
static void use_map_files(cap_flag_value_t value)
{
	static const cap_value_t both[] = {CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN};
	cap_t caps = cap_get_proc();

	assert_int_equal(cap_set_flag(caps, CAP_EFFECTIVE, 2, both, value), 0);
	assert_int_equal(cap_set_proc(caps), 0);
	cap_free(caps);
}

static bool is_found(pid_t process, const void *page)
{
	const uint64_t address = (uint64_t)page + 16;
	int err;

	use_map_files(CAP_CLEAR);
	err = nt_mappings_open(process, &address, 1, &found);
	use_map_files(CAP_SET);
	assert_int_equal(err, 0);
	assert_int_equal(found.count, 1);
	err = found.list[0].fd;
	nt_mappings_free(&found);
	return err >= 0;
}

/*
 * The link stands under the file's name in the root directory of the process, and leads to the very
 * file from ours. From its own it leads to itself.
 */
TEST(no_link_leads_out_of_the_root_of_a_process)
{
	char place[] = "/tmp/nt-mappings-XXXXXX", path[64], root[64], at[160], bytes[4096] = "";
	pid_t process;
	void *page;
	int fd;

	if (geteuid()) {
		print_message("skipped: only root may change its root directory\n");
		skip();
	}
	assert_non_null(mkdtemp(place));
	snprintf(path, sizeof(path), "%s/file", place);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
	snprintf(root, sizeof(root), "%s/root", place);
	assert_int_equal(mkdir(root, 0700), 0);
	snprintf(at, sizeof(at), "%s/tmp", root);
	assert_int_equal(mkdir(at, 0700), 0);
	snprintf(at, sizeof(at), "%s%s", root, place);
	assert_int_equal(mkdir(at, 0700), 0);
	snprintf(at, sizeof(at), "%s%s", root, path);
	page = map(path);
	assert_ptr_not_equal(page, MAP_FAILED);
	process = start_in(root);

	assert_int_equal(link(path, at), 0);
	assert_true(is_found(process, page)); /* the name itself is found there */
	assert_int_equal(unlink(at), 0);
	assert_int_equal(symlink(path, at), 0);
	assert_false(is_found(process, page));

	kill(process, SIGKILL);
	waitpid(process, NULL, 0);
	munmap(page, 4096);
	assert_int_equal(unlink(at), 0);
	*strrchr(at, '/') = '\0';
	assert_int_equal(rmdir(at), 0);
	*strrchr(at, '/') = '\0';
	assert_int_equal(rmdir(at), 0);
	assert_int_equal(rmdir(root), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(place), 0);
}

TEST(of_a_process_that_has_ended_there_is_nothing)
{
	uint64_t address = 4096;
	siginfo_t info;
	pid_t child = fork();

	if (!child)
		_exit(0);
	assert_int_equal(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(nt_mappings_open(child, &address, 1, &found), -ESRCH);
	waitpid(child, NULL, 0);
	assert_int_equal(nt_mappings_open(child, &address, 1, &found), -ESRCH);
}

UNIT_MAIN()
