/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Unwinds by DWARF from the registers and the piece of stack that the kernel side copied at a
 * system call.
 */
#pragma once

#include <elfutils/libdwfl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "bpf/nagletrace.h"

/*
 * Finds the return addresses, innermost first, as far as the dump reaches. dwfl knows the files of
 * the process pid and has no thread state yet. Returns how many of ips[room] it filled; 0 on an
 * architecture without support.
 */
size_t nt_unwind(Dwfl *dwfl, pid_t pid, const struct nt_stack_dump *dump, uint64_t *ips,
		 size_t room);
