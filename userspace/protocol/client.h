/* SPDX-License-Identifier: GPL-2.0 */
/* The client's side of the daemon's socket: docs/protocol.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

#define NT_CLIENT_PATIENCE_S 10  /* a daemon that is there answers sooner */
#define NT_SOCKET_PATH_LEN   108 /* with its NUL: struct sockaddr_un */

/*
 * Connects to the daemon at path. waits: connecting waits for a place in the daemon's backlog, and
 * sending for room, each for at most NT_CLIENT_PATIENCE_S; otherwise no call on the socket waits.
 * Returns the descriptor, or -errno.
 */
int nt_client_connect(const char *path, bool waits);

/*
 * Sends a request: format gives the part in its braces that follows the protocol's version. Returns
 * 0 or -errno; 0 also if the other end is closed, since the caller can still read what it has sent.
 */
int nt_client_ask(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Explains why there is no answer and what to do, for an errno. EAGAIN: no answer came in time;
 * ENODATA: the daemon has ended; EMSGSIZE: the answer is too long; EPROTO: this is no daemon.
 */
void nt_client_explain(const char *path, int err, struct nt_error *error);
