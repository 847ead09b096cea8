/* SPDX-License-Identifier: GPL-2.0 */
/* The daemon's socket from its readers' side: docs/protocol.md. */
#ifndef NT_CLIENT_H
#define NT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include "options.h"

#define NT_CLIENT_PATIENCE_S 10 /* a daemon that is there answers sooner */

/*
 * Connects to the daemon at path. waits: calls on it wait, for NT_CLIENT_PATIENCE_S at most; else
 * none waits. Returns the descriptor, or -errno.
 */
int nt_client_connect(const char *path, bool waits);

/* Sends a request: what stands in its braces behind the protocol's version. 0 or -errno. */
int nt_client_ask(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One line that says why there is no answer, for an errno, and what to do; and the exit code. */
enum nt_exit nt_client_explain(const char *path, int err, char *out, size_t size);

#endif /* NT_CLIENT_H */
