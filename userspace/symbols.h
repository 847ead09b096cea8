/* SPDX-License-Identifier: GPL-2.0 */
/* Names of a process's code addresses, by libdw, through the process's own mount namespace. */
#ifndef NT_SYMBOLS_H
#define NT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct nt_frame {
	uint64_t ip;
	char *module; /* path as the process sees it; NULL for code that no file holds (JIT) */
	uint64_t offset; /* with module: the address in the file as objdump shows it; if the file cannot
			  * be read, the offset in it */
	char *symbol; /* NULL: the module has no name for it */
};

/*
 * Names n return addresses of a process (thread group id in our pid namespace), innermost first. Fills all n
 * frames, to be released with nt_frames_free(). Returns 0, or -errno if the process cannot be looked into any
 * more; the frames then have their ip only. Nothing stays open or in memory; the network is never asked.
 */
int nt_symbols_resolve(pid_t pid, const uint64_t *ips, size_t n, struct nt_frame *frames);
void nt_frames_free(struct nt_frame *frames, size_t n);

#endif /* NT_SYMBOLS_H */
