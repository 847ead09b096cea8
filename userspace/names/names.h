/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Gets names for call stacks from the keeper's workers (keeper.h), on behalf of the tracer, and
 * never waits. The answer to a request comes with a later nt_names_turn(): the names, or why they
 * are missing.
 */
#pragma once

#include <stdbool.h>
#include "names/wire.h"

struct nt_names;

/*
 * Takes the result of a request: n frames, which the callee then owns. They may be fewer, or
 * without names, if why is not NT_NAMED.
 */
typedef void (*nt_named)(void *context, uint64_t number, enum nt_unnamed why,
			 struct nt_frame *frames, size_t n);

/*
 * Starts the keeper, with the capabilities that the process has now and without secret, of size
 * bytes. Returns NULL and sets *err to -errno if it fails.
 */
struct nt_names *nt_names_open(void *secret, size_t size, int *err);

/* Ends the keeper, and waits for that, 0.1 s at most. */
void nt_names_close(struct nt_names *names);

/*
 * Readable when there is something for nt_names_turn(); -1 once the keeper is gone: then nothing is
 * named any more.
 */
int nt_names_fd(const struct nt_names *names);

/*
 * Asks for names. False: we cannot ask now, and count that; the caller may ask again when the stack
 * comes again. cgroup_id: the process's cgroup. named() is called for a request of another owner
 * that has to make room: each owner has a fair share of the requests that wait.
 */
bool nt_names_ask(struct nt_names *names, const struct nt_names_request *request,
		  uint64_t cgroup_id, nt_named named, void *context);

/* Calls named() for each request that was answered or given up, and sends more. */
void nt_names_turn(struct nt_names *names, nt_named named, void *context);

/* Are there requests whose result was not reported yet? */
bool nt_names_wait(const struct nt_names *names);

/* Counts the stacks without names so far, by enum nt_unnamed. */
const uint64_t *nt_names_missing(const struct nt_names *names);
