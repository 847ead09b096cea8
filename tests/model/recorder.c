// SPDX-License-Identifier: GPL-2.0
/*
 * Records what nagletrace's programs would see of the sockets in one or two network namespaces:
 * recorder function|tracepoint FILE INUM [INUM]. Says "ready" once all hooks are attached, ends by a
 * signal, and fails where the kernel skipped or dropped anything.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <linux/types.h>
#include <unistd.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

#include "attach/kernel.h"
#include "model/recorder.skel.h"
#include "../tests/model/recorded.h"

static volatile sig_atomic_t over;
static struct recorded_header header;
static FILE *file;

static void on_signal(int signal)
{
	over = 1;
}

static int on_snapshot(void *context, void *data, size_t size)
{
	if (size != sizeof(struct recorded) || fwrite(data, size, 1, file) != 1)
		return -EIO;
	header.count++;
	return 0;
}

static int failed(const char *what, int err)
{
	fprintf(stderr, "recorder: %s: %s\n", what, strerror(err < 0 ? -err : err));
	return EXIT_FAILURE;
}

/* Is the program one of the family's? */
static bool of_family(const char *section, bool functions)
{
	bool function = !strncmp(section, "fentry/", 7) || !strncmp(section, "fexit/", 6);

	return function ? functions : !functions || strcmp(section, "raw_tp/sock_send_length");
}

/* Runs that the kernel did not make, since another run of the program was under way on the CPU. */
static u64 skipped(struct recorder_bpf *skel)
{
	struct bpf_program *program;
	u64 missed = 0;

	bpf_object__for_each_program(program, skel->obj)
	{
		struct bpf_prog_info info = {};
		u32 size = sizeof(info);

		if (bpf_program__autoload(program) &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size))
			missed += info.recursion_misses;
	}
	return missed;
}

/* A socket that goes teaches the programs the timers' functions. */
static void teach(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0)
		close(fd);
}

static int record(struct recorder_bpf *skel, const char *path)
{
	struct ring_buffer *ring =
		ring_buffer__new(bpf_map__fd(skel->maps.snapshots), on_snapshot, NULL, NULL);
	int n = 0;

	if (!ring)
		return failed("ring buffer", errno);
	teach();
	if (!skel->bss->delack_timer_function)
		return failed("no timer's function was learned", ENODATA);
	fprintf(stderr, "recorder: ready\n");
	while (!over && n >= 0) {
		n = ring_buffer__poll(ring, 100);
		if (n == -EINTR)
			n = 0;
	}
	if (n >= 0)
		n = ring_buffer__consume(ring);
	if (n < 0)
		return failed(path, n);
	header.dropped = skel->bss->dropped + skipped(skel);
	rewind(file);
	if (fwrite(&header, sizeof(header), 1, file) != 1 || fclose(file))
		return failed(path, errno);
	ring_buffer__free(ring);
	fprintf(stderr, "recorder: %u snapshots, %u dropped\n", header.count, header.dropped);
	return header.dropped ? 3 : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct bpf_program *program;
	struct recorder_bpf *skel;
	struct utsname name;
	bool functions;
	int err;

	if (argc < 4 || argc > 5 ||
	    (strcmp(argv[1], "function") && strcmp(argv[1], "tracepoint"))) {
		fprintf(stderr, "usage: recorder function|tracepoint FILE INUM [INUM]\n");
		return 2;
	}
	functions = !strcmp(argv[1], "function");
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	file = fopen(argv[2], "wb");
	if (!file)
		return failed(argv[2], errno);
	uname(&name);
	snprintf(header.magic, sizeof(header.magic), RECORDED_MAGIC);
	/* what follows the version is the name that somebody gave a build */
	snprintf(header.release, sizeof(header.release), "%.*s", (int)strcspn(name.release, "-"),
		 name.release);
	snprintf(header.family, sizeof(header.family), "%s", argv[1]);
	header.tick_ns = nt_kernel_tick_ns();
	header.delack_by_rto_min = nt_kernel_delack_by_rto_min();
	header.header_bytes = sizeof(header);
	header.snapshot_bytes = sizeof(struct recorded);
	if (fwrite(&header, sizeof(header), 1, file) != 1)
		return failed(argv[2], errno);
	skel = recorder_bpf__open();
	if (!skel)
		return failed("programs", errno);
	for (int i = 3; i < argc; i++)
		skel->rodata->spaces[i - 3] = strtoul(argv[i], NULL, 10);
	bpf_object__for_each_program(program, skel->obj)
		bpf_program__set_autoload(program, of_family(bpf_program__section_name(program), functions));
	err = recorder_bpf__load(skel);
	if (!err)
		err = recorder_bpf__attach(skel);
	if (err)
		return failed("hooks", err);
	err = record(skel, argv[2]);
	recorder_bpf__destroy(skel);
	return err;
}
