// SPDX-License-Identifier: GPL-2.0
#include "capture/behind.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define LATELY_NS (10 * NT_SECOND_NS)

static uint64_t port_key(const struct nt_tuple *tuple)
{
	return (uint64_t)tuple->netns << 16 | tuple->local_port;
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* Did this end make the connection? A socket that was accepted has the port of a listener. */
static bool connected(const struct nt_behind *behind, const struct nt_tuple *tuple)
{
	uint64_t key = port_key(tuple);

	return tuple->remote_port &&
	       !bsearch(&key, behind->ports, behind->n_ports, sizeof(*behind->ports), compare);
}

/* Takes the ports that somebody listens at. Returns whether there was memory. */
static bool take_ports(struct nt_behind *behind, const struct nt_owner_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count; i++)
		n += !list->owners[i].tuple.remote_port;
	free(behind->ports);
	behind->ports = calloc(n + 1, sizeof(*behind->ports));
	n = 0;
	for (size_t i = 0; behind->ports && i < list->count; i++)
		if (!list->owners[i].tuple.remote_port)
			behind->ports[n++] = port_key(&list->owners[i].tuple);
	behind->n_ports = n;
	if (n)
		qsort(behind->ports, n, sizeof(*behind->ports), compare);
	return behind->ports;
}

/* Notes a relay. Where the table is full, one that no look has found lately makes room. */
static void note_relay(struct nt_behind *behind, uint32_t tgid, uint64_t now_ns)
{
	size_t at = 0;

	while (at < behind->n_relays && behind->relays[at].tgid != tgid)
		at++;
	if (at == NT_MOST_RELAYS)
		for (at = 0; at < NT_MOST_RELAYS; at++)
			if (behind->relays[at].seen_ns + LATELY_NS < now_ns)
				break;
	if (at == NT_MOST_RELAYS)
		return;
	behind->relays[at] = (struct nt_relay){.tgid = tgid, .seen_ns = now_ns};
	if (at == behind->n_relays)
		behind->n_relays++;
}

/* Notes the relays at the other end of a connection, if a process asked for has made it. */
static void note_relays(struct nt_behind *behind, const struct nt_owner_list *list,
			const struct nt_owner *owner, nt_owner_wanted *wanted, void *context,
			uint64_t now_ns)
{
	const struct nt_owner *peer = nt_owner_list_find_peer(list, &owner->tuple);
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	struct nt_end end = {};
	size_t count;

	/* wanted() may read files: we ask last */
	if (!peer || connected(behind, &peer->tuple) || !connected(behind, &owner->tuple) ||
	    !wanted(context, owner->tgid))
		return;
	end.sk = peer->sk;
	end.tuple = peer->tuple;
	count = nt_owner_list_find(list, &end, found);
	for (size_t i = 0; i < count; i++)
		if (!wanted(context, found[i].tgid))
			note_relay(behind, found[i].tgid, now_ns);
}

void nt_behind_take(struct nt_behind *behind, const struct nt_owner_list *list,
		    nt_owner_wanted *wanted, void *context, uint64_t now_ns)
{
	if (!take_ports(behind, list)) {
		nt_behind_clear(behind);
		return;
	}
	for (size_t i = 0; i < list->count; i++)
		note_relays(behind, list, &list->owners[i], wanted, context, now_ns);
}

bool nt_behind_has(const struct nt_behind *behind, uint32_t tgid, const struct nt_tuple *tuple,
		   uint64_t now_ns)
{
	for (size_t i = 0; i < behind->n_relays; i++)
		if (behind->relays[i].tgid == tgid)
			return behind->relays[i].seen_ns + LATELY_NS >= now_ns &&
			       connected(behind, tuple);
	return false;
}

void nt_behind_clear(struct nt_behind *behind)
{
	free(behind->ports);
	memset(behind, 0, sizeof(*behind));
}
