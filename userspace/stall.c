// SPDX-License-Identifier: GPL-2.0
#include "stall.h"

#include <string.h>
#include <sys/socket.h>

static bool in_list(const struct nt_port_list *list, uint16_t port)
{
	for (unsigned int i = 0; i < list->count; i++)
		if (list->port[i] == port)
			return true;
	return false;
}

/* The kernel side let pass what has one of the ports at either end. */
static bool ports_match(const struct nt_options *opts, const struct nt_tuple *tuple)
{
	if (opts->ports.count && !in_list(&opts->ports, tuple->local_port) &&
	    !in_list(&opts->ports, tuple->remote_port))
		return false;
	if (opts->local_ports.count && !in_list(&opts->local_ports, tuple->local_port))
		return false;
	return !opts->remote_ports.count || in_list(&opts->remote_ports, tuple->remote_port);
}

bool nt_tuple_wanted(const struct nt_options *opts, const struct nt_tuple *tuple)
{
	if (opts->netns && tuple->netns != opts->netns)
		return false;
	if (opts->only_v4 || opts->only_v6)
		if ((tuple->family == AF_INET) != opts->only_v4)
			return false;
	return ports_match(opts, tuple);
}

static __u64 began_ns(const struct nt_record *r)
{
	return r->sender.present ? r->hold.begin_ns : r->ack.begin_ns;
}

/* Of several processes that hold the socket, one that is asked for, else the youngest number. */
static pid_t choose_owner(const struct nt_owner *list, size_t count,
			  const struct nt_targets *targets)
{
	pid_t chosen = 0;

	for (size_t i = 0; i < count; i++) {
		if (nt_targets_any(targets) && nt_targets_match(targets, list[i].tgid))
			return list[i].tgid;
		chosen = list[i].tgid;
	}
	return chosen;
}

/* Who owns this end: its writer where one was seen, else by its descriptors, else who used it
 * before. */
static pid_t owner_of(const struct nt_end *end, const struct nt_record *r, bool wrote,
		      const struct nt_targets *targets, struct nt_owners *owners)
{
	const struct nt_owner *list;
	size_t count;

	if (wrote && end->tgid)
		return end->tgid;
	list = nt_owners_find(owners, end, began_ns(r), &count);
	return list ? choose_owner(list, count, targets) : (pid_t)end->tgid;
}

/* Is this end asked for? The writer may be another than the process that holds the socket too. */
static bool end_matches(const struct nt_end *end, const struct nt_record *r,
			const struct nt_options *opts, const struct nt_targets *targets,
			struct nt_owners *owners)
{
	const struct nt_owner *list;
	size_t count;

	if (!end->present || !ports_match(opts, &end->tuple))
		return false;
	if (!nt_targets_any(targets) || end->target || nt_targets_match(targets, end->tgid))
		return true;
	list = nt_owners_find(owners, end, began_ns(r), &count);
	for (size_t i = 0; i < count; i++)
		if (nt_targets_match(targets, list[i].tgid))
			return true;
	return false;
}

/* Names the owner of an end; one that is gone by now as it was when it was last found. */
static void describe(struct nt_process *process, const struct nt_end *end, bool wrote, pid_t owner,
		     struct nt_owners *owners)
{
	const struct nt_process *known;

	if (!owner || nt_process_read(owner, process)) {
		known = nt_owners_recall(owners, end);
		if (known && (!owner || known->tgid == owner))
			*process = *known;
	}
	if (wrote && end->tgid && end->tgid == (__u32)owner)
		memcpy(process->comm, end->comm, sizeof(process->comm));
	process->comm[NT_COMM_LEN - 1] = '\0';
	if (process->tgid)
		nt_owners_remember(owners, end, process);
}

/* A prompt ACK would have ended the hold a round trip after it began, and the pending ACK at once.
 */
static void measure(struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;
	bool held = r->sender.present;
	uint64_t begin = held ? r->hold.begin_ns : r->ack.begin_ns;
	uint64_t end = held ? r->hold.end_ns : r->ack.end_ns;
	uint64_t unavoidable;

	stall->min_rtt_us = held ? r->sender.min_rtt_us : r->receiver.min_rtt_us;
	stall->duration_ns = end > begin ? end - begin : 0;
	unavoidable = held ? stall->min_rtt_us * 1000ULL : 0;
	stall->excess_ns = stall->duration_ns > unavoidable ? stall->duration_ns - unavoidable : 0;
}

/*
 * What was inferred from one end, when the other is looked at too and showed nothing: a receiver
 * that put no ACK off, so that the wait was on the way; a sender that held nothing, so that what
 * came a round trip after our ACK came by chance.
 */
static bool peer_contradicts(const struct nt_record *r, const struct nt_options *opts,
			     struct nt_owners *owners)
{
	const struct nt_end *end = r->sender.present ? &r->sender : &r->receiver;

	return r->evidence == NT_EVIDENCE_INFERRED && !opts->netns &&
	       nt_owners_has_peer(owners, &end->tuple);
}

bool nt_stall_from_record(struct nt_stall *stall, const struct nt_record *record,
			  const struct nt_options *opts, const struct nt_targets *targets,
			  struct nt_owners *owners)
{
	const struct nt_record *r = record;
	struct nt_process *sender, *receiver;

	if (end_matches(&r->sender, r, opts, targets, owners))
		stall->side = NT_SIDE_SENDER;
	else if (end_matches(&r->receiver, r, opts, targets, owners))
		stall->side = NT_SIDE_RECEIVER;
	else
		return false;
	if (peer_contradicts(r, opts, owners))
		return false;

	stall->record = *r;
	stall->is_stall = r->kind == NT_RECORD_STALL;
	memset(&stall->self, 0, sizeof(stall->self));
	memset(&stall->peer, 0, sizeof(stall->peer));
	sender = stall->side == NT_SIDE_SENDER ? &stall->self : &stall->peer;
	receiver = stall->side == NT_SIDE_SENDER ? &stall->peer : &stall->self;
	if (r->sender.present)
		describe(sender, &r->sender, true, owner_of(&r->sender, r, true, targets, owners),
			 owners);
	if (r->receiver.present)
		describe(receiver, &r->receiver, false,
			 owner_of(&r->receiver, r, false, targets, owners), owners);
	stall->tid = stall->side == NT_SIDE_SENDER ? r->sender.tid : 0;
	measure(stall);
	return true;
}
