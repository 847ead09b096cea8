// SPDX-License-Identifier: GPL-2.0
#include "owners.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "clock.h"
#include "nagletrace.skel.h"

#define KEEP_AT_LEAST_NS 5000000ULL
#define KEEP_TIMES_COST  20

int nt_owners_open(struct nt_owners *owners, const struct nt_tracer *tracer)
{
	memset(owners, 0, sizeof(*owners));
	if (!tracer->typed)
		return -EOPNOTSUPP;
	owners->iterator = bpf_program__attach_iter(tracer->skel->progs.dump_owners, NULL);
	return owners->iterator ? 0 : -errno;
}

void nt_owners_close(struct nt_owners *owners)
{
	bpf_link__destroy(owners->iterator);
	free(owners->list);
}

static int compare(const void *a, const void *b)
{
	const struct nt_owner *x = a, *y = b;

	if (x->sk != y->sk)
		return x->sk < y->sk ? -1 : 1;
	if (x->tgid != y->tgid)
		return x->tgid < y->tgid ? -1 : 1;
	if (x->fd != y->fd)
		return x->fd < y->fd ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Threads that unshared their table, and descriptors that are duplicates, name a process again. */
static void remove_duplicates(struct nt_owners *owners)
{
	size_t kept = 0;

	for (size_t i = 0; i < owners->count; i++) {
		const struct nt_owner *owner = &owners->list[i];

		if (!kept || owners->list[kept - 1].sk != owner->sk ||
		    owners->list[kept - 1].tgid != owner->tgid)
			owners->list[kept++] = *owner;
	}
	owners->count = kept;
}

static int grow(struct nt_owners *owners)
{
	size_t room = owners->room ? 2 * owners->room : 256;
	void *list = realloc(owners->list, room * sizeof(*owners->list));

	if (!list)
		return -ENOMEM;
	owners->list = list;
	owners->room = room;
	return 0;
}

/* Reads whole entries, which the kernel may hand out in any pieces. */
static int read_all(struct nt_owners *owners, int fd)
{
	size_t bytes = 0;
	ssize_t n;

	for (;;) {
		if (bytes / sizeof(*owners->list) + 1 >= owners->room && grow(owners))
			return -ENOMEM;
		n = read(fd, (char *)owners->list + bytes,
			 owners->room * sizeof(*owners->list) - bytes);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		bytes += n;
	}
	owners->count = bytes / sizeof(*owners->list);
	return 0;
}

int nt_owners_scan(struct nt_owners *owners)
{
	__u64 began = nt_now_ns(), cost;
	int fd, err;

	if (!owners->iterator)
		return -EOPNOTSUPP;
	fd = bpf_iter_create(bpf_link__fd(owners->iterator));
	if (fd < 0)
		return -errno;
	owners->count = 0;
	err = read_all(owners, fd);
	close(fd);
	if (err)
		return err;
	qsort(owners->list, owners->count, sizeof(*owners->list), compare);
	remove_duplicates(owners);
	cost = nt_now_ns() - began;
	owners->scanned_ns = began;
	owners->valid_until_ns = began + cost +
				 (KEEP_TIMES_COST * cost > KEEP_AT_LEAST_NS ? KEEP_TIMES_COST * cost
									    : KEEP_AT_LEAST_NS);
	return 0;
}

static int refresh(struct nt_owners *owners)
{
	return nt_now_ns() < owners->valid_until_ns ? 0 : nt_owners_scan(owners);
}

/* Memory of sockets is used again: the addresses must agree too. */
static bool same_connection(const struct nt_tuple *a, const struct nt_tuple *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port &&
	       a->netns == b->netns && !memcmp(a->remote_addr, b->remote_addr, 16);
}

static const struct nt_owner *find_in_list(const struct nt_owners *owners, const struct nt_end *end,
					   size_t *count)
{
	const struct nt_owner *first;
	size_t low = 0, high = owners->count;

	*count = 0;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (owners->list[middle].sk < end->sk)
			low = middle + 1;
		else
			high = middle;
	}
	first = &owners->list[low];
	while (low + *count < owners->count && first[*count].sk == end->sk &&
	       same_connection(&first[*count].tuple, &end->tuple))
		++*count;
	return *count ? first : NULL;
}

const struct nt_owner *nt_owners_find(struct nt_owners *owners, const struct nt_end *end,
				      __u64 since_ns, size_t *count)
{
	const struct nt_owner *found;

	*count = 0;
	if (refresh(owners))
		return NULL;
	found = find_in_list(owners, end, count);
	/* the socket may be younger than what is kept */
	if (!found && owners->scanned_ns < since_ns && !nt_owners_scan(owners))
		found = find_in_list(owners, end, count);
	return found;
}

static size_t known_place(__u64 sk)
{
	/* sockets lie at multiples of 64 and more */
	return (sk >> 6) % NT_KNOWN_OWNERS;
}

void nt_owners_remember(struct nt_owners *owners, const struct nt_end *end,
			const struct nt_process *process)
{
	struct nt_known_owner *known = &owners->known[known_place(end->sk)];

	known->sk = end->sk;
	known->tuple = end->tuple;
	known->process = *process;
}

const struct nt_process *nt_owners_recall(const struct nt_owners *owners, const struct nt_end *end)
{
	const struct nt_known_owner *known = &owners->known[known_place(end->sk)];

	return known->sk == end->sk && same_connection(&known->tuple, &end->tuple) ? &known->process
										   : NULL;
}

bool nt_owners_has_peer(struct nt_owners *owners, const struct nt_tuple *tuple)
{
	if (refresh(owners))
		return false;
	for (size_t i = 0; i < owners->count; i++) {
		const struct nt_tuple *peer = &owners->list[i].tuple;

		if (peer->local_port == tuple->remote_port &&
		    peer->remote_port == tuple->local_port &&
		    !memcmp(peer->local_addr, tuple->remote_addr, 16) &&
		    !memcmp(peer->remote_addr, tuple->local_addr, 16))
			return true;
	}
	return false;
}
