/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The requests to the process that names frames, and its replies. That process has read files that
 * a traced process chose, so we take its replies for hostile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "bpf/nagletrace.h"
#include "names/symbols.h"
#include "terms/unnamed.h"

struct nt_names_request {
	uint64_t number;
	uint32_t tgid;
	uint32_t n;     /* of ips */
	uint64_t owner; /* the owner whose share of time it takes; each has one worker at a time */
	uint64_t ips[NT_STACK_DEPTH];
	struct nt_stack_dump dump; /* sp 0: none */
};

struct nt_names_reply {
	uint64_t number;
	uint64_t cpu_ns; /* what naming took, as the keeper measured it */
	uint32_t why;    /* enum nt_unnamed; with NT_UNNAMED_LIMIT some names may be there */
	uint32_t n;      /* frames that follow */
};

/* We cut a longer name of a module or symbol; the reports show no more either. */
#define NT_NAME_BYTES 1024

/*
 * The bytes of all names of a stack; if its names are longer, the outermost frames stay without.
 * This leaves room for a thousand stacks and as many connections that show them.
 */
#define NT_NAMES_BYTES 16384

struct nt_names_frame {
	uint64_t ip, offset;
	uint16_t module, symbol; /* bytes that follow, without a NUL; NT_NAMES_NONE: no name */
	uint32_t reserved;
};

#define NT_NAMES_NONE 0xffff

#define NT_NAMES_REPLY_BYTES                                                              \
	(sizeof(struct nt_names_reply) + NT_STACK_DEPTH * sizeof(struct nt_names_frame) + \
	 NT_NAMES_BYTES)

/*
 * Writes a reply with n frames, at most NT_STACK_DEPTH, into bytes[NT_NAMES_REPLY_BYTES]. It says
 * NT_UNNAMED_LIMIT if there was no room for some names. Returns its length.
 */
size_t nt_names_encode(const struct nt_names_reply *head, const struct nt_frame *frames, size_t n,
		       uint8_t *bytes);

/*
 * Decodes a reply. Returns 0 and sets *head and frames[NT_STACK_DEPTH], which the caller releases
 * with nt_frames_free(); -EBADMSG if nt_names_encode() cannot have written it, or -ENOMEM: then
 * there is nothing to release. Names contain no NUL, but may contain any other bytes: the code that
 * prints them escapes them.
 */
int nt_names_decode(const uint8_t *bytes, size_t length, struct nt_names_reply *head,
		    struct nt_frame *frames);
