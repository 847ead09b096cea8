/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The worker: a process for one stack. It opens files with the keeper's capabilities, gives these
 * up, and has the kernel refuse it almost all system calls; only then does it read the contents of
 * those files.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "names/wire.h"

/* Limits: memory beyond that of its start, mapped files included; CPU time. */
#define NT_WORKER_BYTES (256UL << 20)
#define NT_WORKER_CPU_S 1
/* The limit of descriptors: one for each mapped file, for a moment two, and a few more. */
#define NT_WORKER_FILES (NT_MAPPINGS_MOST + 32)

/* The keeper makes this once, before it starts a worker. */
struct nt_worker_setup {
	void *filter;     /* libseccomp's filter; NULL: this kernel has none */
	size_t own_bytes; /* the address space of the process before it names anything */
};

void nt_worker_set_up(struct nt_worker_setup *setup);

/* Runs in a process of its own: names the stack, sends the reply to fd, and ends. */
void nt_worker_run(const struct nt_worker_setup *setup, const struct nt_names_request *request,
		   int fd) __attribute__((noreturn));
