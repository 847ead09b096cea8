// SPDX-License-Identifier: GPL-2.0
#include "capture/owner_list.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/grow.h"

#define NONE       UINT32_MAX
#define FIRST_ROOM 256

struct nt_owner_links {
	uint32_t socket, connection; /* the next owner at the same place of the hash */
	enum {
		NOT_ASKED,
		NOT_WANTED,
		WANTED,
	} wanted; /* we ask only if its socket has too many processes */
};

bool nt_same_connection(const struct nt_tuple *a, const struct nt_tuple *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port &&
	       a->netns == b->netns && !memcmp(a->remote_addr, b->remote_addr, 16);
}

/* room is a power of two. */
static size_t place_of(const struct nt_owner_list *list, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ULL) >> 32 & (list->room - 1);
}

static uint32_t *socket_place(const struct nt_owner_list *list, uint64_t sk)
{
	return &list->by_socket[place_of(list, sk)];
}

static uint32_t *connection_place(const struct nt_owner_list *list, const struct nt_tuple *tuple)
{
	return &list->by_connection[place_of(list, nt_connection_key(tuple))];
}

static void link_in(struct nt_owner_list *list, uint32_t i)
{
	uint32_t *socket = socket_place(list, list->owners[i].sk);
	uint32_t *connection = connection_place(list, &list->owners[i].tuple);

	list->links[i] = (struct nt_owner_links){.socket = *socket, .connection = *connection};
	*socket = *connection = i;
}

static void link_all(struct nt_owner_list *list)
{
	memset(list->by_socket, 0xff, list->room * sizeof(*list->by_socket));
	memset(list->by_connection, 0xff, list->room * sizeof(*list->by_connection));
	for (size_t i = 0; i < list->count; i++)
		link_in(list, i);
}

static int grow(struct nt_owner_list *list)
{
	size_t room = list->room ? 2 * list->room : FIRST_ROOM;

	if (nt_resize(&list->owners, room, sizeof(*list->owners)) ||
	    nt_resize(&list->links, room, sizeof(*list->links)) ||
	    nt_resize(&list->by_socket, room, sizeof(*list->by_socket)) ||
	    nt_resize(&list->by_connection, room, sizeof(*list->by_connection)))
		return -ENOMEM;
	list->room = room;
	link_all(list);
	return 0;
}

/*
 * Makes room in a full list: the largest shares give up owners until an eighth is free, and
 * get no more than that from now on. Each time takes a pass over all owners; there are only a few
 * such passes, as the limit falls each time.
 */
static void make_room(struct nt_owner_list *list)
{
	struct nt_shares left = {};
	uint32_t limit = nt_shares_limit(&list->shares, NT_MOST_OWNERS / 8 * 7);
	size_t kept = 0;

	list->share_limit = limit ? limit : 1;
	for (size_t i = 0; i < list->count; i++) {
		uint32_t *has = &left.count[nt_share_place(list->owners[i].share)];

		if (*has == list->share_limit)
			continue;
		++*has;
		list->owners[kept++] = list->owners[i];
	}
	list->count = kept;
	list->shares = left;
	link_all(list);
}

/* Finds room for an owner of this share. Returns 0, -ENOSPC: the share has its part, or -ENOMEM. */
static int find_room(struct nt_owner_list *list, uint64_t share)
{
	if (list->count == NT_MOST_OWNERS)
		make_room(list);
	if (list->share_limit && list->shares.count[nt_share_place(share)] >= list->share_limit)
		return -ENOSPC;
	return list->count == list->room ? grow(list) : 0;
}

/*
 * Adds one more process of a socket that has NT_OWNERS_OF_SOCKET already, in the place of one that
 * the user did not ask for.
 */
static void take_place(struct nt_owner_list *list, const struct nt_owner *owner,
		       const uint32_t *of_socket, nt_owner_wanted *wanted, void *context)
{
	for (size_t i = 0; i < NT_OWNERS_OF_SOCKET; i++) {
		struct nt_owner_links *links = &list->links[of_socket[i]];
		struct nt_owner *other = &list->owners[of_socket[i]];

		if (links->wanted == NOT_ASKED)
			links->wanted = wanted(context, other->tgid) ? WANTED : NOT_WANTED;
		if (links->wanted == WANTED)
			continue;
		*other = *owner;
		links->wanted = NOT_ASKED;
		return;
	}
}

int nt_owner_list_add(struct nt_owner_list *list, const struct nt_owner *owner,
		      nt_owner_wanted *wanted, void *context)
{
	uint32_t of_socket[NT_OWNERS_OF_SOCKET], at;
	size_t n = 0;
	int err;

	for (at = list->room ? *socket_place(list, owner->sk) : NONE;
	     at != NONE && n < NT_OWNERS_OF_SOCKET; at = list->links[at].socket) {
		if (list->owners[at].sk != owner->sk)
			continue;
		if (list->owners[at].tgid == owner->tgid)
			return 0;
		of_socket[n++] = at;
	}
	if (n == NT_OWNERS_OF_SOCKET) {
		take_place(list, owner, of_socket, wanted, context);
		return 0;
	}
	err = find_room(list, owner->share);
	if (err)
		return err == -ENOSPC ? 0 : err;
	list->shares.count[nt_share_place(owner->share)]++;
	list->owners[list->count] = *owner;
	link_in(list, list->count++);
	return 0;
}

size_t nt_owner_list_find(const struct nt_owner_list *list, const struct nt_end *end,
			  struct nt_owner found[NT_OWNERS_OF_SOCKET])
{
	uint32_t at = list->room ? *socket_place(list, end->sk) : NONE;
	size_t count = 0, staying = 0;

	for (; at != NONE && count < NT_OWNERS_OF_SOCKET; at = list->links[at].socket) {
		const struct nt_owner *owner = &list->owners[at];
		size_t i = count;

		if (owner->sk != end->sk || !nt_same_connection(&owner->tuple, &end->tuple))
			continue;
		for (count++; i && found[i - 1].tgid > owner->tgid; i--)
			found[i] = found[i - 1];
		found[i] = *owner;
	}
	for (size_t i = 0; i < count; i++)
		if (!found[i].passing)
			found[staying++] = found[i];
	return staying ? staying : count;
}

static bool is_peer(const struct nt_tuple *peer, const struct nt_tuple *tuple)
{
	return peer->local_port == tuple->remote_port && peer->remote_port == tuple->local_port &&
	       !memcmp(peer->local_addr, tuple->remote_addr, 16) &&
	       !memcmp(peer->remote_addr, tuple->local_addr, 16);
}

/* Each namespace has such addresses, and no connection of theirs leaves it. */
static bool is_loopback(const struct nt_tuple *tuple)
{
	static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;

	return tuple->family == AF_INET ? tuple->remote_addr[0] == IN_LOOPBACKNET
					: !memcmp(tuple->remote_addr, &loopback, sizeof(loopback));
}

const struct nt_owner *nt_owner_list_find_peer(const struct nt_owner_list *list,
					       const struct nt_tuple *tuple)
{
	uint32_t at = list->room ? *connection_place(list, tuple) : NONE;
	const struct nt_owner *elsewhere = NULL;

	for (; at != NONE; at = list->links[at].connection) {
		const struct nt_owner *owner = &list->owners[at];

		if (!is_peer(&owner->tuple, tuple))
			continue;
		if (owner->tuple.netns == tuple->netns)
			return owner;
		elsewhere = owner;
	}
	return is_loopback(tuple) ? NULL : elsewhere;
}

void nt_owner_list_clear(struct nt_owner_list *list)
{
	free(list->owners);
	free(list->links);
	free(list->by_socket);
	free(list->by_connection);
	memset(list, 0, sizeof(*list));
}
