// SPDX-License-Identifier: GPL-2.0
#include "timeline/ends.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENDS    16384
#define CLOSED_NS   1000000000ULL /* a closed socket does nothing more after this time */
#define SAME_NUMBER (1U << 24) /* sequence numbers of one connection mostly lie closer together */
#define FAR         UINT32_MAX

static void remove_connection(struct nt_timeline_ends *ends, struct nt_timeline_connection *c)
{
	struct nt_timeline_connection *first, **link;

	HASH_FIND(hh, ends->connections, &c->key, sizeof(c->key), first);
	if (first == c) {
		HASH_DEL(ends->connections, c);
		if (c->next)
			HASH_ADD(hh, ends->connections, key, sizeof(c->next->key), c->next);
	} else {
		for (link = first ? &first->next : &c; *link && *link != c; link = &(*link)->next)
			;
		if (first && *link)
			*link = c->next;
	}
	free(c);
}

static void remove_end(struct nt_timeline_ends *ends, struct nt_timeline_end *end)
{
	struct nt_timeline_connection *c = end->connection;

	c->ends[end->right] = NULL;
	if (!c->ends[!end->right])
		remove_connection(ends, c);
	HASH_DEL(ends->ends, end);
	free(end);
}

void nt_timeline_ends_free(struct nt_timeline_ends *ends)
{
	struct nt_timeline_end *end, *next;

	HASH_ITER(hh, ends->ends, end, next)
	remove_end(ends, end);
}

void nt_timeline_ends_sweep(struct nt_timeline_ends *ends, uint64_t now_ns)
{
	struct nt_timeline_end *end, *next;

	if (now_ns < ends->swept_ns + CLOSED_NS)
		return;
	ends->swept_ns = now_ns;
	HASH_ITER(hh, ends->ends, end, next)
	if (end->closed_ns && end->closed_ns + CLOSED_NS < now_ns)
		remove_end(ends, end);
}

void nt_timeline_ends_forget(struct nt_timeline_ends *ends)
{
	for (struct nt_timeline_end *end = ends->ends; end; end = end->hh.next) {
		end->line.holds = false;
		end->line.acking = false;
		end->timer_fired = false;
		end->copied_known = false;
		end->sent_known = false;
	}
}

/* ---- numbers ---- */

static void learn_base(struct nt_timeline_connection *c, bool right, uint32_t first)
{
	if (c->base_known[right])
		return;
	c->base[right] = first - 1;
	c->base_known[right] = true;
}

static void learn_bases(struct nt_timeline_end *end, const struct nt_event *e)
{
	struct nt_timeline_connection *c = end->connection;

	switch (e->kind) {
	case NT_EVENT_WRITE:
	case NT_EVENT_HOLD_BEGIN:
		learn_base(c, end->right, e->seq);
		break;
	case NT_EVENT_READ:
		learn_base(c, !end->right, e->seq);
		break;
	case NT_EVENT_SENT:
		if (e->flags & NT_TCPHDR_SYN) {
			learn_base(c, end->right, e->seq + 1);
			break;
		}
		learn_base(c, end->right, e->seq);
		learn_base(c, !end->right, e->ack);
		break;
	case NT_EVENT_RECEIVED:
		learn_base(c, !end->right, e->seq);
		learn_base(c, end->right, e->ack);
		break;
	case NT_EVENT_STATE:
		if (e->flags != NT_TCP_ESTABLISHED)
			break;
		learn_base(c, end->right, e->seq);
		learn_base(c, !end->right, e->ack);
		end->copied_seq = e->ack;
		end->copied_known = true;
		break;
	}
}

int64_t nt_timeline_number(const struct nt_timeline_end *end, bool of_peer, uint32_t seq)
{
	uint32_t number = seq - end->connection->base[of_peer ? !end->right : end->right];

	/* these bytes come before the first ones that we saw, and were sent again */
	return number > UINT32_MAX - SAME_NUMBER ? (int64_t)number - UINT32_MAX - 1 : number;
}

/* ---- which end an event belongs to ---- */

/* Returns how far this number is from the first of that end; FAR: they are of two connections. */
static uint32_t distance_from(const struct nt_timeline_connection *c, bool right, uint32_t seq)
{
	uint32_t distance = seq - c->base[right];

	if (!c->base_known[right])
		return SAME_NUMBER - 1;
	if (distance > -distance)
		distance = -distance;
	return distance < SAME_NUMBER ? distance : FAR;
}

/*
 * Can this event belong to the end of a connection that we have not seen yet? Its sequence numbers
 * decide too, since other namespaces may use the same addresses. Returns how far they are apart;
 * FAR: it cannot.
 */
static uint32_t distance_of(const struct nt_timeline_connection *c, bool right,
			    const struct nt_event *e)
{
	if (c->ends[right])
		return FAR;
	switch (e->kind) {
	case NT_EVENT_WRITE:
	case NT_EVENT_HOLD_BEGIN:
	case NT_EVENT_SENT:
	case NT_EVENT_STATE:
		return distance_from(c, right, e->seq);
	case NT_EVENT_RECEIVED:
	case NT_EVENT_READ:
		return distance_from(c, !right, e->seq);
	default:
		return SAME_NUMBER - 1;
	}
}

static bool is_right(const struct nt_timeline_connection *c, const struct nt_tuple *tuple)
{
	return c->left.local_port != tuple->local_port ||
	       memcmp(c->left.local_addr, tuple->local_addr, 16) ||
	       c->left.remote_port != tuple->remote_port;
}

static struct nt_timeline_connection *connection_of(struct nt_timeline_ends *ends,
						    const struct nt_event *e)
{
	uint64_t key = nt_connection_key(&e->tuple);
	struct nt_timeline_connection *first, *c, *nearest = NULL;
	uint32_t least = FAR, distance;

	HASH_FIND(hh, ends->connections, &key, sizeof(key), first);
	/* connections that begin at once have numbers that are near, too: secure_tcp_seq() */
	for (c = first; c; c = c->next) {
		distance = distance_of(c, is_right(c, &e->tuple), e);
		if (distance < least) {
			least = distance;
			nearest = c;
		}
	}
	if (nearest)
		return nearest;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->key = key;
	c->left = e->tuple;
	c->number = ends->numbers + 1;
	if (first) {
		c->next = first->next;
		first->next = c;
	} else {
		HASH_ADD(hh, ends->connections, key, sizeof(c->key), c);
		if (!c->hh.tbl) {
			free(c);
			return NULL;
		}
	}
	ends->numbers++;
	return c;
}

static bool same_addresses(const struct nt_tuple *a, const struct nt_tuple *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port &&
	       a->netns == b->netns && !memcmp(a->local_addr, b->local_addr, 16) &&
	       !memcmp(a->remote_addr, b->remote_addr, 16);
}

static bool begins(const struct nt_event *e)
{
	return (e->kind == NT_EVENT_STATE && e->flags == NT_TCP_ESTABLISHED) ||
	       (e->kind == NT_EVENT_SENT && e->flags & NT_TCPHDR_SYN);
}

static bool only_ends(const struct nt_event *e)
{
	return e->kind == NT_EVENT_HOLD_END ||
	       (e->kind == NT_EVENT_STATE && e->flags == NT_TCP_CLOSE);
}

static struct nt_timeline_end *add_end(struct nt_timeline_ends *ends, const struct nt_event *e)
{
	struct nt_timeline_end *end = calloc(1, sizeof(*end));

	if (!end)
		return NULL;
	end->sk = e->sk;
	end->line.tuple = e->tuple;
	HASH_ADD(hh, ends->ends, sk, sizeof(end->sk), end);
	if (!end->hh.tbl) {
		free(end);
		return NULL;
	}
	end->connection = connection_of(ends, e);
	if (!end->connection) {
		HASH_DEL(ends->ends, end);
		free(end);
		return NULL;
	}
	end->right = is_right(end->connection, &e->tuple);
	end->connection->ends[end->right] = end;
	return end;
}

struct nt_timeline_end *nt_timeline_end_of(struct nt_timeline_ends *ends, const struct nt_event *e,
					   bool *is_new)
{
	struct nt_timeline_end *end;

	*is_new = false;
	HASH_FIND(hh, ends->ends, &e->sk, sizeof(e->sk), end);
	if (end && same_addresses(&end->line.tuple, &e->tuple) && !(end->closed_ns && begins(e))) {
		learn_bases(end, e);
		return end;
	}
	if (end) /* another connection uses its memory now */
		remove_end(ends, end);
	if (only_ends(e))
		return NULL;
	if (HASH_COUNT(ends->ends) >= MAX_ENDS)
		remove_end(ends, ends->ends); /* the oldest */
	*is_new = true;
	end = add_end(ends, e);
	if (end)
		learn_bases(end, e);
	return end;
}
