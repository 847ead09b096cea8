/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The owners of sockets, as one look at all descriptors found them, in bounded memory: for each
 * socket at most NT_OWNERS_OF_SOCKET processes, and as many sockets as fit, in fair shares.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bpf/nagletrace.h"
#include "base/shares.h"

/* A server's workers share its sockets. If more processes do, we keep only some. */
#define NT_OWNERS_OF_SOCKET 8

/* The most pairs of a socket and a process in the list: 19 MB, and 5 MB to find them. */
#define NT_MOST_OWNERS (1 << 18)

struct nt_owner_links;

struct nt_owner_list {
	struct nt_owner *owners;
	struct nt_owner_links *links; /* of the owner at the same place */
	size_t count, room;
	uint32_t *by_socket, *by_connection; /* hashes, of as many places as there is room */
	struct nt_shares shares;
	uint32_t share_limit; /* the most owners of one share; 0: as many as fit */
};

/* Did the user ask for this process? */
typedef bool nt_owner_wanted(void *context, uint32_t tgid);

/*
 * Adds an owner, unless the list has it. If a socket has too many processes, those that the user
 * asked for stay, then the last that came. Returns 0 or -ENOMEM. An owner for which there is no
 * room is left out and counted; that returns 0 too, unless memory is short.
 */
int nt_owner_list_add(struct nt_owner_list *list, const struct nt_owner *owner,
		      nt_owner_wanted *wanted, void *context);

/*
 * Writes a socket's owners into found[], the smallest process number first; returns how many. A
 * child on its way to an exec is none beside others.
 */
size_t nt_owner_list_find(const struct nt_owner_list *list, const struct nt_end *end,
			  struct nt_owner found[NT_OWNERS_OF_SOCKET]);

/* Returns the socket at the other end of this connection; NULL: the list does not have it. */
const struct nt_owner *nt_owner_list_find_peer(const struct nt_owner_list *list,
					       const struct nt_tuple *tuple);

/* Forgets all owners, and gives the memory back. */
void nt_owner_list_clear(struct nt_owner_list *list);

/*
 * Do both tuples belong to one connection? The kernel reuses the memory of sockets, so the
 * addresses must agree too.
 */
bool nt_same_connection(const struct nt_tuple *a, const struct nt_tuple *b);
