/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Refuses system calls that an attached tracer never makes, and that an attacker who took it over
 * would need.
 */
#pragma once

#include <stdbool.h>

/*
 * From now on the kernel refuses these calls with EPERM, for good. It refuses two of them, whose
 * arguments a filter cannot see, with ENOSYS, so that the C library makes the older call instead. A
 * call by the numbers of another architecture ends the process. but: the names of calls that stay
 * allowed, with a NULL behind the last, or NULL. attaches: bpf() may attach programs, but
 * still load none. The process must have set no_new_privs, and have
 * one thread. Returns 0, or -errno if the kernel or a filter that is already in force does not
 * allow this.
 */
int nt_refuse_system_calls(const char *const *but, bool attaches);

/* Does the same, and where that fails reports it and goes on. */
void nt_refuse_system_calls_or_report(const char *const *but, bool attaches);
