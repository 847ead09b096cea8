// SPDX-License-Identifier: GPL-2.0
#include "capture/stall.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool in_list(const struct nt_port_list *list, uint16_t port)
{
	for (unsigned int i = 0; i < list->count; i++)
		if (list->port[i] == port)
			return true;
	return false;
}

/* Checks the ports: the kernel side passes a connection that has one of them at either end. */
static bool ports_match(const struct nt_settings *settings, const struct nt_tuple *tuple)
{
	if (settings->ports.count && !in_list(&settings->ports, tuple->local_port) &&
	    !in_list(&settings->ports, tuple->remote_port))
		return false;
	if (settings->local_ports.count && !in_list(&settings->local_ports, tuple->local_port))
		return false;
	return !settings->remote_ports.count ||
	       in_list(&settings->remote_ports, tuple->remote_port);
}

bool nt_tuple_wanted(const struct nt_settings *settings, const struct nt_tuple *tuple)
{
	if (settings->netns && tuple->netns != settings->netns)
		return false;
	if (settings->only_v4 || settings->only_v6)
		if ((tuple->family == AF_INET) != settings->only_v4)
			return false;
	return ports_match(settings, tuple);
}

/*
 * Chooses among several processes that hold the socket: one that the user asked for, else the one
 * with the highest number.
 */
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

/*
 * Returns the owner of this end: the process that the kernel side saw write or wait just then, else
 * one that has it open, else one that used it before; 0: there is none.
 */
static pid_t owner_of(const struct nt_end *end, const struct nt_record *r,
		      const struct nt_targets *targets, struct nt_owners *owners)
{
	const struct nt_owner *list;
	size_t count;

	if (end->comm[0] || end->user == NT_USER_KERNEL)
		return end->tgid;
	list = nt_owners_find(owners, end, nt_record_began_ns(r), &count);
	return list ? choose_owner(list, count, targets) : (pid_t)end->tgid;
}

/*
 * Did the user ask for this end? Its writer may be another process than the one that holds the
 * socket.
 */
static bool end_matches(const struct nt_end *end, const struct nt_record *r,
			const struct nt_settings *settings, const struct nt_targets *targets,
			struct nt_owners *owners)
{
	const struct nt_process *known;
	const struct nt_owner *list;
	size_t count;

	if (!end->present || !ports_match(settings, &end->tuple))
		return false;
	if (!nt_targets_any(targets) || end->target || nt_targets_match(targets, end->tgid))
		return true;
	list = nt_owners_find(owners, end, nt_record_began_ns(r), &count);
	/* the process may be gone since, as after its last stall: compare it as it was */
	known = nt_owners_recall(owners, end);
	for (size_t i = 0; i < count; i++)
		if (nt_targets_match(targets, list[i].tgid) ||
		    (known && known->tgid == (pid_t)list[i].tgid &&
		     nt_targets_match_known(targets, known)))
			return true;
	return !list && known && nt_targets_match_known(targets, known);
}

/* Does the record show only the end of a client, whose late ACK kept the server in accept()? */
static bool server_waited(const struct nt_record *r)
{
	return r->hold.reason == NT_HOLD_HANDSHAKE && r->receiver.present && !r->sender.present;
}

/* Did the user ask for that server? */
static bool server_matches(const struct nt_record *r, const struct nt_settings *settings,
			   const struct nt_targets *targets, struct nt_owners *owners)
{
	struct nt_end server = {.present = 1};
	const struct nt_owner *peer;

	if (!server_waited(r) || !nt_targets_any(targets))
		return false;
	peer = nt_owners_find_peer(owners, &r->receiver.tuple, r->time_ns);
	if (!peer)
		return false;
	server.sk = peer->sk;
	server.tuple = peer->tuple;
	return end_matches(&server, r, settings, targets, owners);
}

/*
 * Names the owner of an end; an owner that is gone by now gets the name that it had when we last
 * found it.
 */
static void describe(struct nt_process *process, const struct nt_end *end, pid_t owner,
		     struct nt_owners *owners)
{
	const struct nt_process *known = NULL;
	bool gone;

	if (end->user == NT_USER_KERNEL) {
		nt_process_of_kernel(end->comm, process);
		return;
	}
	gone = !owner || nt_process_read_once(&owners->recent, owner, process);
	if (gone)
		known = nt_owners_recall(owners, end);
	if (known && (!owner || known->tgid == owner)) {
		*process = *known;
		gone = false;
	}
	/* a number without a name is of no use, unless it is the one that was asked for */
	if (gone && !end->comm[0] && !end->target)
		memset(process, 0, sizeof(*process));
	if (end->comm[0] && end->tgid == (__u32)owner)
		snprintf(process->comm, sizeof(process->comm), "%.*s", (int)sizeof(end->comm),
			 end->comm);
	if (process->tgid)
		nt_owners_remember(owners, end, process);
}

/*
 * Measures the excess: what a hold that an ACK ended lasted beyond the way of a prompt one, and all
 * of any other wait.
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
	unavoidable = r->hold.way_us * 1000ULL;
	stall->excess_ns = stall->duration_ns > unavoidable ? stall->duration_ns - unavoidable : 0;
}

/*
 * Contradicts a stall that only one end shows, if we look at the other end too and it shows
 * nothing. A receiver without a pending ACK contradicts it, since the network then caused the wait.
 * A sender without a hold contradicts it, since data then came a round trip after our ACK by
 * chance; the kernel side says so where it saw the ACK come, and the sender may be gone by now.
 *
 * A receiver also shows nothing if the machine hides its timer from us. So its silence contradicts
 * only where the audit knows that no timer of its namespace expired unseen during the hold, but for
 * those that have excused another stall.
 */
static bool peer_contradicts(const struct nt_record *r, const struct nt_settings *settings,
			     struct nt_owners *owners, struct nt_audit *audit)
{
	const struct nt_end *end = r->sender.present ? &r->sender : &r->receiver;
	const struct nt_owner *peer;

	if (r->evidence != NT_EVIDENCE_INFERRED)
		return false;
	if (r->ack.freed_nothing)
		return true;
	peer = nt_owners_find_peer(owners, &end->tuple, 0);
	if (!peer || (settings->netns && settings->netns != peer->tuple.netns))
		return false;
	return !r->sender.present ||
	       !nt_audit_excuses(audit, peer->tuple.netns, r->hold.begin_ns, r->hold.end_ns);
}

/* Turns a stall into a wait that was real, but no stall; the pattern says which one it seemed. */
static void take_back(struct nt_stall *stall)
{
	struct nt_record *r = &stall->record;

	stall->contradicted = true;
	stall->is_stall = false;
	r->cause = NT_CAUSE_INVALID;
	r->evidence = NT_EVIDENCE_INVALID;
}

/* Do we need the process that has this end's socket? Follows owner_of() and end_matches(). */
static bool end_needs_owner(const struct nt_end *end, const struct nt_targets *targets)
{
	return end->present && ((!end->comm[0] && end->user != NT_USER_KERNEL) ||
				(nt_targets_any(targets) && !end->target));
}

bool nt_stall_must_look(const struct nt_record *r, const struct nt_targets *targets,
			const struct nt_owners *owners)
{
	__u64 since_ns = nt_record_began_ns(r);

	return (end_needs_owner(&r->sender, targets) &&
		nt_owners_must_look(owners, &r->sender, since_ns)) ||
	       (end_needs_owner(&r->receiver, targets) &&
		nt_owners_must_look(owners, &r->receiver, since_ns)) ||
	       (r->evidence == NT_EVIDENCE_INFERRED && nt_owners_must_look(owners, NULL, 0)) ||
	       (server_waited(r) && nt_targets_any(targets) && !r->receiver.target &&
		nt_owners_must_look_for_peer(owners, &r->receiver.tuple, r->time_ns));
}

/* Fills in all but the side. */
static void fill(struct nt_stall *stall, const struct nt_record *r,
		 const struct nt_settings *settings, const struct nt_targets *targets,
		 struct nt_owners *owners, struct nt_audit *audit)
{
	stall->record = *r;
	stall->is_stall = r->kind == NT_RECORD_STALL;
	stall->contradicted = false;
	stall->ack_id = stall->number = 0;
	stall->origin = NULL;
	if (peer_contradicts(r, settings, owners, audit))
		take_back(stall);
	memset(&stall->sender, 0, sizeof(stall->sender));
	memset(&stall->receiver, 0, sizeof(stall->receiver));
	if (r->sender.present)
		describe(&stall->sender, &r->sender, owner_of(&r->sender, r, targets, owners),
			 owners);
	if (r->receiver.present)
		describe(&stall->receiver, &r->receiver, owner_of(&r->receiver, r, targets, owners),
			 owners);
	measure(stall);
}

bool nt_stall_from_record(struct nt_stall *stall, const struct nt_record *record,
			  const struct nt_settings *settings, const struct nt_targets *targets,
			  struct nt_owners *owners, struct nt_audit *audit)
{
	const struct nt_record *r = record;

	if (end_matches(&r->sender, r, settings, targets, owners))
		stall->side = NT_SIDE_SENDER;
	else if (end_matches(&r->receiver, r, settings, targets, owners) ||
		 server_matches(r, settings, targets, owners))
		stall->side = NT_SIDE_RECEIVER;
	else
		return false;

	fill(stall, r, settings, targets, owners, audit);
	return true;
}

/* Is this the end of a relay to which a process asked for has connected? */
static bool end_is_relay(const struct nt_end *end, const struct nt_record *r,
			 const struct nt_settings *settings, const struct nt_targets *targets,
			 struct nt_owners *owners)
{
	const struct nt_process *known;
	pid_t owner;

	if (!end->present || !ports_match(settings, &end->tuple))
		return false;
	owner = owner_of(end, r, targets, owners);
	known = owner ? NULL : nt_owners_recall(owners, end);
	return nt_behind_has(&owners->behind, known ? known->tgid : owner, &end->tuple, r->time_ns);
}

bool nt_stall_behind(struct nt_stall *stall, const struct nt_record *record,
		     const struct nt_settings *settings, const struct nt_targets *targets,
		     struct nt_owners *owners)
{
	if (record->kind != NT_RECORD_STALL || !owners->behind.n_relays)
		return false;
	/* an unseen timer would excuse it in peer_contradicts(): that is for those asked for */
	if (record->evidence == NT_EVIDENCE_INFERRED && record->sender.present &&
	    nt_owners_find_peer(owners, &record->sender.tuple, 0))
		return false;
	if (end_is_relay(&record->sender, record, settings, targets, owners))
		stall->side = NT_SIDE_SENDER;
	else if (end_is_relay(&record->receiver, record, settings, targets, owners))
		stall->side = NT_SIDE_RECEIVER;
	else
		return false;
	fill(stall, record, settings, targets, owners, NULL);
	stall->record.hold.stack_id = NT_NO_STACK;
	return stall->is_stall && nt_stall_process(stall, stall->side)->tgid;
}
