// SPDX-License-Identifier: GPL-2.0
#include "names/worker.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "privileges/privileges.h"

/*
 * The system calls that a worker may make once it reads data that others wrote: it uses its open
 * descriptors, memory, and the reply. A list of allowed calls is right here: if a C library needs
 * one more, we lose a name, and the trace goes on.
 */
static const char *const allowed[] = {
	"read",   "pread64", "lseek",      "fstat",     "newfstatat",   "fcntl",
	"close",  "munmap",  "mremap",     "brk",       "madvise",      "futex",
	"sendto", "getpid",  "exit_group", "getrandom", "rt_sigreturn", "clock_gettime",
};

static int allow(scmp_filter_ctx filter)
{
	/* nothing that it has read can become code */
	const struct scmp_arg_cmp no_code = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		int number = seccomp_syscall_resolve_name(allowed[i]);

		if (number != __NR_SCMP_ERROR)
			err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
	}
	if (!err)
		err = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &no_code);
	if (!err)
		err = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
					     &no_code);
	return err;
}

void nt_worker_set_up(struct nt_worker_setup *setup)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	/* refuse the call, do not kill the worker: a library goes on without it */
	setup->filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (setup->filter && allow(setup->filter)) {
		seccomp_release(setup->filter);
		setup->filter = NULL;
	}
	if (file && fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	setup->own_bytes = pages * sysconf(_SC_PAGESIZE);
}

static void limit(int what, rlim_t soft, rlim_t hard)
{
	const struct rlimit to = {.rlim_cur = soft, .rlim_max = hard};

	setrlimit(what, &to);
}

static void set_limits(const struct nt_worker_setup *setup)
{
	const rlim_t bytes = setup->own_bytes + NT_WORKER_BYTES;

	limit(RLIMIT_AS, bytes, bytes);
	limit(RLIMIT_CPU, NT_WORKER_CPU_S, NT_WORKER_CPU_S + 1);
	limit(RLIMIT_NOFILE, NT_WORKER_FILES, NT_WORKER_FILES);
	limit(RLIMIT_FSIZE, 0, 0);
}

/* Unblocks all signals, so that any can end the worker; the keeper blocks its own. */
static void listen_to_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void give_up_privileges(const struct nt_worker_setup *setup)
{
	if (nt_privileges_drop(NULL, 0, NULL, 0, NULL, NULL, 0))
		_exit(1);
	if (!setup->filter || seccomp_load(setup->filter))
		_exit(1); /* no name is worth a worker that may do all */
}

/* Is there a frame that would have a name, if there had been more memory? */
static bool names_are_missing(const struct nt_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (frames[i].module && !frames[i].symbol)
			return true;
	return false;
}

static void reply(int fd, const struct nt_names_reply *head, const struct nt_frame *frames,
		  size_t n)
{
	static uint8_t bytes[NT_NAMES_REPLY_BYTES];

	send(fd, bytes, nt_names_encode(head, frames, n, bytes), MSG_NOSIGNAL);
}

void nt_worker_run(const struct nt_worker_setup *setup, const struct nt_names_request *request,
		   int fd)
{
	struct nt_names_reply head = {.number = request->number};
	static struct nt_frame frames[NT_STACK_DEPTH];
	static struct nt_mappings mappings;
	size_t n = 0;
	int err;

	prctl(PR_SET_NAME, "nagletrace-name");
	set_limits(setup);
	listen_to_signals();
	err = nt_symbols_open(request->tgid, request->ips, request->n, &request->dump, &mappings);
	give_up_privileges(setup);
	if (err == -ESRCH) {
		head.why = NT_UNNAMED_GONE;
	} else {
		errno = 0;
		n = nt_symbols_name(request->tgid, request->ips, request->n, &request->dump,
				    &mappings, frames, NT_STACK_DEPTH);
		/* libdw skips what it has no memory for, and does not report it */
		if (mappings.full || err == -ENOMEM ||
		    (errno == ENOMEM && names_are_missing(frames, n)))
			head.why = NT_UNNAMED_LIMIT;
	}
	reply(fd, &head, frames, n);
	_exit(0);
}
