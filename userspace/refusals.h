/* SPDX-License-Identifier: GPL-2.0 */
/* System calls that a tracer which is attached never makes, and who took it over would. */
#ifndef NT_REFUSALS_H
#define NT_REFUSALS_H

/*
 * From now on the kernel refuses them with EPERM (for two, whose arguments a filter cannot see,
 * with ENOSYS, upon which the C library takes the older call), for good; a call by the numbers of
 * another architecture ends the process. but: the name of one that stays allowed, or NULL. Wants
 * no_new_privs set and one thread. 0, or -errno where the kernel or a filter already in force does
 * not allow it.
 */
int nt_refuse_system_calls(const char *but);

#endif /* NT_REFUSALS_H */
