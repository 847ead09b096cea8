// SPDX-License-Identifier: GPL-2.0
#include "capture/owners.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "base/clock.h"
#include "attach/tracer.h"
#include "nagletrace.skel.h"

/*
 * We keep the result of a look for a multiple of its cost. The next look waits for another
 * multiple, so that looks take at most a fifth of one CPU whatever stalls. A debt of AHEAD_NS is
 * allowed: we want to find processes that end soon, and looks are cheap on most hosts.
 */
#define KEEP_AT_LEAST_NS 5000000ULL
#define KEEP_TIMES_COST  20
#define TAKES_TIMES_COST 5
#define AHEAD_NS         (NT_SECOND_NS / 2)

/* The pause after a look that failed. */
#define REST_AFTER_ERROR_NS NT_SECOND_NS

/* We give up a look that costs more: three million descriptors take some two seconds at most. */
#define MOST_COST_NS (20 * NT_SECOND_NS)

/* How often nt_owners_scan() checks for signals. */
#define SLICE_NS (20 * 1000000ULL)

/* A list with more owners gives its memory back. */
#define MUCH 4096

int nt_owners_open(struct nt_owners *owners, const struct nt_tracer *tracer,
		   const struct nt_targets *targets)
{
	memset(owners, 0, sizeof(*owners));
	owners->tracer = tracer;
	owners->targets = targets;
	if (!tracer->typed)
		return -EOPNOTSUPP;
	owners->iterator = bpf_program__attach_iter(tracer->skel->progs.dump_owners, NULL);
	return owners->iterator ? 0 : -errno;
}

static void take_out(struct nt_owners *owners, struct nt_known_owner *known)
{
	HASH_DEL(owners->known, known);
	owners->known_shares.count[nt_share_place(known->share)]--;
}

static void drop_known(struct nt_owners *owners, struct nt_known_owner *known)
{
	take_out(owners, known);
	free(known);
}

void nt_owners_close(struct nt_owners *owners)
{
	nt_iterator_end(&owners->reader);
	bpf_link__destroy(owners->iterator);
	nt_owner_list_clear(&owners->list);
	nt_owner_list_clear(&owners->next);
	nt_behind_clear(&owners->behind);
	nt_asked_clear(&owners->asked);
	while (owners->known)
		drop_known(owners, owners->known);
}

/* ---- a look at all descriptors ---- */

static int begin_look(struct nt_owners *owners)
{
	owners->tracer->skel->bss->owners_look++;
	owners->began_ns = nt_now_ns();
	memset(owners->next_untraced, 0, sizeof(owners->next_untraced));
	nt_asked_clear(&owners->asked);
	return nt_iterator_begin(&owners->reader, owners->iterator, sizeof(struct nt_owner));
}

static bool is_wanted(void *context, uint32_t tgid)
{
	struct nt_owners *owners = context;

	return nt_targets_any(owners->targets) &&
	       nt_targets_match_once(owners->targets, tgid, &owners->asked);
}

/* Bounds the memory of both lists together: the old one gives way to the new one. */
static void bound_memory(struct nt_owners *owners)
{
	if (owners->next.count + owners->list.count >= NT_MOST_OWNERS)
		nt_owner_list_clear(&owners->list);
}

/* Takes one piece. Returns 1: there is more, 0: that was the last, or -errno. */
static int take_piece(struct nt_owners *owners)
{
	const struct nt_owner *piece;
	ssize_t n = nt_iterator_next(&owners->reader, (const void **)&piece);

	nt_process_take_root(&owners->tracer->skel->bss->cgroup_root);
	for (ssize_t i = 0; i < n; i++) {
		if (piece[i].untraced && is_wanted(owners, piece[i].tgid))
			owners->next_untraced[piece[i].untraced]++;
		if (!piece[i].sk)
			continue;
		bound_memory(owners);
		if (nt_owner_list_add(&owners->next, &piece[i], is_wanted, owners))
			return -ENOMEM;
	}
	return n > 0 ? 1 : n;
}

/* Takes what a look shows of relays; in a part of one a listener may be missing. */
static void take_behind(struct nt_owners *owners, int err)
{
	__u64 began = nt_cpu_ns();

	if (!owners->looks_behind)
		return;
	if (err || owners->next.share_limit)
		nt_behind_clear(&owners->behind);
	else
		nt_behind_take(&owners->behind, &owners->next, is_wanted, owners, owners->began_ns);
	owners->cost_ns += nt_cpu_ns() - began;
}

/* Ends the look; err: 0, or -errno with which it ended. */
static void end_look(struct nt_owners *owners, int err)
{
	bool much = owners->list.count > MUCH || owners->next.count > MUCH;
	__u64 now, cost;

	take_behind(owners, err);
	now = nt_now_ns();
	cost = owners->cost_ns;
	nt_iterator_end(&owners->reader);
	owners->scanned_ns = owners->began_ns;
	for (size_t i = 0; i < NT_UNTRACED_KINDS; i++)
		if (owners->untraced[i] < owners->next_untraced[i])
			owners->untraced[i] = owners->next_untraced[i];
	owners->valid_until_ns =
		now + (KEEP_TIMES_COST * cost > KEEP_AT_LEAST_NS ? KEEP_TIMES_COST * cost
								 : KEEP_AT_LEAST_NS);
	if (owners->taken_until_ns < now)
		owners->taken_until_ns = now;
	owners->taken_until_ns += TAKES_TIMES_COST * cost;
	owners->rest_until_ns = owners->taken_until_ns - AHEAD_NS;
	/* if a look took too long, the part that it found is better than nothing */
	if (!err || err == -ETIME) {
		nt_owner_list_clear(&owners->list);
		owners->list = owners->next;
		memset(&owners->next, 0, sizeof(owners->next));
	} else {
		nt_owner_list_clear(&owners->next);
		if (owners->rest_until_ns < now + REST_AFTER_ERROR_NS)
			owners->rest_until_ns = now + REST_AFTER_ERROR_NS;
		if (owners->valid_until_ns < owners->rest_until_ns)
			owners->valid_until_ns = owners->rest_until_ns;
	}
	if (much)
		malloc_trim(0);
}

/* Goes on with the look. Returns 1: there is more to do, 0: it is done, or -errno. */
static int go_on(struct nt_owners *owners, __u64 until_ns)
{
	bool begins = !owners->reader.under_way;
	__u64 began = nt_cpu_ns();
	int more = begins ? begin_look(owners) : 0;

	if (!more)
		do {
			more = take_piece(owners);
		} while (more > 0 && nt_now_ns() < until_ns);
	owners->cost_ns = (begins ? 0 : owners->cost_ns) + nt_cpu_ns() - began;
	if (more > 0 && owners->cost_ns > MOST_COST_NS)
		more = -ETIME;
	if (more <= 0)
		end_look(owners, more);
	return more;
}

int nt_owners_try(struct nt_owners *owners)
{
	int more = begin_look(owners);

	if (!more)
		more = take_piece(owners);
	nt_owners_drop_look(owners);
	return more < 0 ? more : 0;
}

bool nt_owners_go_on(struct nt_owners *owners, __u64 until_ns)
{
	return owners->iterator && go_on(owners, until_ns) > 0;
}

void nt_owners_drop_look(struct nt_owners *owners)
{
	nt_iterator_end(&owners->reader);
	nt_owner_list_clear(&owners->next);
}

static bool signal_waits(void)
{
	sigset_t waiting;

	return !sigpending(&waiting) &&
	       (sigismember(&waiting, SIGINT) || sigismember(&waiting, SIGTERM));
}

int nt_owners_scan(struct nt_owners *owners)
{
	int more;

	if (!owners->iterator)
		return -EOPNOTSUPP;
	nt_owners_drop_look(owners);
	do {
		if (owners->interruptible && (owners->interrupted || signal_waits())) {
			end_look(owners, -EINTR);
			return -EINTR;
		}
		more = go_on(owners, nt_now_ns() + SLICE_NS);
	} while (more > 0);
	return more == -ETIME ? 0 : more;
}

void nt_owners_shrink(struct nt_owners *owners)
{
	if (owners->list.count <= MUCH || nt_now_ns() < owners->valid_until_ns ||
	    owners->reader.under_way)
		return;
	nt_owner_list_clear(&owners->list);
	owners->scanned_ns = 0;
	malloc_trim(0);
}

/* ---- what a look found ---- */

static bool has_owner(const struct nt_owners *owners, const struct nt_end *end)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET];

	return nt_owner_list_find(&owners->list, end, found);
}

static bool too_old(const struct nt_owners *owners)
{
	return owners->iterator && nt_now_ns() >= owners->valid_until_ns;
}

/* Can a socket be younger than the last look? */
static bool may_be_younger(const struct nt_owners *owners, __u64 since_ns)
{
	return owners->iterator && owners->scanned_ns < since_ns;
}

bool nt_owners_must_look(const struct nt_owners *owners, const struct nt_end *end, __u64 since_ns)
{
	return too_old(owners) ||
	       (end && may_be_younger(owners, since_ns) && !has_owner(owners, end));
}

bool nt_owners_must_look_for_peer(const struct nt_owners *owners, const struct nt_tuple *tuple,
				  __u64 since_ns)
{
	return too_old(owners) ||
	       (may_be_younger(owners, since_ns) && !nt_owner_list_find_peer(&owners->list, tuple));
}

static void look_if(struct nt_owners *owners, bool must_look)
{
	if (!owners->as_it_is && must_look && nt_now_ns() >= owners->rest_until_ns)
		nt_owners_scan(owners);
}

const struct nt_owner *nt_owners_find(struct nt_owners *owners, const struct nt_end *end,
				      __u64 since_ns, size_t *count)
{
	look_if(owners, nt_owners_must_look(owners, end, since_ns));
	*count = nt_owner_list_find(&owners->list, end, owners->found);
	return *count ? owners->found : NULL;
}

const struct nt_owner *nt_owners_find_peer(struct nt_owners *owners, const struct nt_tuple *tuple,
					   __u64 since_ns)
{
	look_if(owners, nt_owners_must_look_for_peer(owners, tuple, since_ns));
	return nt_owner_list_find_peer(&owners->list, tuple);
}

/* ---- earlier owners of a socket ---- */

/* The least recently used owner of the share that has most makes room. */
static void forget_one(struct nt_owners *owners)
{
	unsigned int largest = nt_shares_largest(&owners->known_shares);
	struct nt_known_owner *known = owners->known;

	while (nt_share_place(known->share) != largest)
		known = known->hh.next;
	drop_known(owners, known);
}

void nt_owners_remember(struct nt_owners *owners, const struct nt_end *end,
			const struct nt_process *process)
{
	struct nt_known_owner *known;
	__u64 now_ns = nt_now_ns();

	HASH_FIND(hh, owners->known, &end->sk, sizeof(end->sk), known);
	if (known && now_ns < known->until_ns && known->process.tgid == process->tgid &&
	    !strcmp(known->process.comm, process->comm) &&
	    !strcmp(known->process.cgroup, process->cgroup) &&
	    nt_same_connection(&known->tuple, &end->tuple))
		return;
	if (known)
		take_out(owners, known);
	else if (HASH_COUNT(owners->known) >= NT_KNOWN_OWNERS)
		forget_one(owners);
	if (!known)
		known = malloc(sizeof(*known));
	if (!known)
		return;
	*known = (struct nt_known_owner){.sk = end->sk,
					 .share = end->share,
					 .tuple = end->tuple,
					 .process = *process,
					 .until_ns = now_ns + NT_RENEW_NS};
	HASH_ADD(hh, owners->known, sk, sizeof(known->sk), known);
	if (known->hh.tbl)
		owners->known_shares.count[nt_share_place(known->share)]++;
	else
		free(known);
}

const struct nt_process *nt_owners_recall(const struct nt_owners *owners, const struct nt_end *end)
{
	const struct nt_known_owner *known;

	HASH_FIND(hh, owners->known, &end->sk, sizeof(end->sk), known);
	return known && nt_same_connection(&known->tuple, &end->tuple) ? &known->process : NULL;
}
