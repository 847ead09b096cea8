// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/behind.c userspace/capture/owner_list.c userspace/capture/stall.c
/*
 * What one end shows, beside what the other end of the same host shows, and who has that:
 * userspace/capture/stall.c.
 */
#include <string.h>
#include <sys/socket.h>
#include "unit.h"
#include "capture/stall.h"
#include "capture/owners.h"

#define HOST_NS   100
#define SERVER_NS 101
#define SERVER    42

static const struct nt_settings all;
static const struct nt_settings server_only = {.netns = SERVER_NS}, host_only = {.netns = HOST_NS};
static struct nt_owners owners;

/* ---- in the place of owners.c, processes.c and audit.c ---- */

static struct nt_owner peer, holders[2]; /* of the other end; of the end of a record */
static struct nt_process known;          /* who last had the end of a record; tgid 0: nobody */
static bool peer_is_here;
static pid_t wanted; /* the process asked for; 0: all */
static unsigned int excuses_left, asked;
static uint32_t asked_netns;

const struct nt_owner *nt_owners_find_peer(struct nt_owners *o, const struct nt_tuple *tuple,
					   __u64 since_ns)
{
	return peer_is_here ? &peer : NULL;
}

bool nt_owners_must_look_for_peer(const struct nt_owners *o, const struct nt_tuple *tuple,
				  __u64 since_ns)
{
	return false;
}

const struct nt_owner *nt_owners_find(struct nt_owners *o, const struct nt_end *end, __u64 since_ns,
				      size_t *count)
{
	bool held = end->sk == holders[0].sk;

	*count = held ? 2 : peer_is_here && end->sk == peer.sk;
	return !*count ? NULL : held ? holders : &peer;
}

bool nt_owners_must_look(const struct nt_owners *o, const struct nt_end *end, __u64 since_ns)
{
	return false;
}

const struct nt_process *nt_owners_recall(const struct nt_owners *o, const struct nt_end *end)
{
	return known.tgid ? &known : NULL;
}

void nt_owners_remember(struct nt_owners *o, const struct nt_end *end,
			const struct nt_process *process)
{
}

bool nt_targets_any(const struct nt_targets *targets)
{
	return wanted;
}

bool nt_targets_match(const struct nt_targets *targets, pid_t tgid)
{
	return tgid == wanted;
}

bool nt_targets_match_known(const struct nt_targets *targets, const struct nt_process *process)
{
	return false;
}

int nt_process_read(pid_t tgid, struct nt_process *process)
{
	return -1;
}

bool nt_audit_excuses(struct nt_audit *audit, uint32_t netns, uint64_t begin_ns, uint64_t end_ns)
{
	assert_int_equal(begin_ns, 10 * MS);
	assert_int_equal(end_ns, 54 * MS);
	asked++;
	asked_netns = netns;
	if (!excuses_left)
		return false;
	excuses_left--;
	return true;
}

static int set_up(void **state)
{
	peer = (struct nt_owner){.sk = 7, .tgid = SERVER, .tuple.netns = SERVER_NS};
	memset(holders, 0xff, sizeof(holders));
	known.tgid = wanted = 0;
	peer_is_here = true;
	excuses_left = asked = asked_netns = 0;
	return 0;
}

/* ---- records ---- */

static struct nt_record from_sender(enum nt_evidence evidence)
{
	return (struct nt_record){
		.kind = NT_RECORD_STALL,
		.cause = NT_CAUSE_NAGLE_DELAYED_ACK,
		.evidence = evidence,
		.pattern = NT_PATTERN_WRITE_WRITE_READ,
		.sender = {.present = 1, .tuple.netns = HOST_NS, .tuple.family = AF_INET},
		.hold = {.begin_ns = 10 * MS,
			 .end_ns = 54 * MS,
			 .reason = NT_HOLD_NAGLE,
			 .release = NT_RELEASE_ACK},
	};
}

static struct nt_record from_receiver(void)
{
	return (struct nt_record){
		.kind = NT_RECORD_STALL,
		.cause = NT_CAUSE_NAGLE_DELAYED_ACK,
		.evidence = NT_EVIDENCE_INFERRED,
		.pattern = NT_PATTERN_PEER_HOLDS,
		.receiver = {.present = 1, .tuple.netns = HOST_NS, .tuple.family = AF_INET},
		.ack = {.begin_ns = 10 * MS, .end_ns = 54 * MS, .release = NT_ACK_TIMER},
	};
}

static struct nt_stall judge(const struct nt_record *record, const struct nt_settings *settings)
{
	struct nt_stall stall;

	memset(&stall, 0xa5, sizeof(stall));
	assert_true(nt_stall_from_record(&stall, record, settings, NULL, &owners, NULL));
	assert_true(stall.contradicted != stall.is_stall);
	return stall;
}

/* ---- what is decided ---- */

TEST(an_end_elsewhere_contradicts_nothing)
{
	struct nt_record s = from_sender(NT_EVIDENCE_INFERRED), r = from_receiver();

	peer_is_here = false;
	assert_true(judge(&s, &all).is_stall);
	assert_true(judge(&r, &all).is_stall);
	assert_int_equal(asked, 0);
}

TEST(what_both_ends_showed_is_not_contradicted)
{
	struct nt_record s = from_sender(NT_EVIDENCE_SEEN);

	assert_true(judge(&s, &all).is_stall);
	assert_int_equal(asked, 0);
}

TEST(a_receiver_of_this_host_that_showed_nothing_contradicts)
{
	struct nt_record s = from_sender(NT_EVIDENCE_INFERRED);
	struct nt_stall stall = judge(&s, &all);

	assert_true(stall.contradicted);
	assert_int_equal(stall.record.cause, NT_CAUSE_INVALID);
	assert_int_equal(stall.record.evidence, NT_EVIDENCE_INVALID);
	assert_int_equal(stall.record.pattern, NT_PATTERN_WRITE_WRITE_READ);
	assert_int_equal(stall.duration_ns, 44 * MS);
}

TEST(a_timer_that_nobody_saw_excuses_one_receivers_silence)
{
	struct nt_record s = from_sender(NT_EVIDENCE_INFERRED);
	struct nt_stall stall;

	excuses_left = 1;
	stall = judge(&s, &all);
	assert_true(stall.is_stall);
	assert_int_equal(asked_netns, SERVER_NS); /* the receiver's, not the sender's */
	assert_int_equal(stall.record.evidence, NT_EVIDENCE_INFERRED);
	assert_int_equal(stall.record.pattern, NT_PATTERN_WRITE_WRITE_READ);
	assert_true(judge(&s, &all).contradicted);
}

/* The receiver's timer was seen there: it is the sender that shows no hold. */
TEST(no_timer_excuses_a_sender_that_held_nothing)
{
	struct nt_record r = from_receiver();
	struct nt_stall stall;

	excuses_left = 5;
	stall = judge(&r, &all);
	assert_true(stall.contradicted);
	assert_int_equal(stall.record.pattern, NT_PATTERN_PEER_HOLDS);
	assert_int_equal(excuses_left, 5);
}

/* It may be gone, or in a namespace that is not traced: its program has seen the ACK come. */
TEST(a_sender_that_had_nothing_unsent_contradicts_wherever_it_is)
{
	struct nt_record r = from_receiver();

	r.ack.freed_nothing = true;
	peer_is_here = false;
	assert_true(judge(&r, &all).contradicted);
	peer_is_here = true;
	assert_true(judge(&r, &host_only).contradicted);
}

TEST(an_end_in_a_namespace_that_is_not_traced_contradicts_nothing)
{
	struct nt_record s = from_sender(NT_EVIDENCE_INFERRED);

	assert_true(judge(&s, &host_only).is_stall);
	assert_int_equal(asked, 0);
	/* both ends in the one that is */
	assert_true(judge(&s, &server_only).contradicted);
}

/* Its accept() waited; the record has the end of the client, for which nobody asked. */
TEST(a_server_that_was_asked_for_has_waited)
{
	struct nt_record r = from_receiver();
	struct nt_stall stall;

	r.cause = NT_CAUSE_DELAYED_ACK;
	r.evidence = NT_EVIDENCE_SEEN;
	r.hold.reason = NT_HOLD_HANDSHAKE;
	wanted = SERVER;
	assert_true(nt_stall_from_record(&stall, &r, &all, NULL, &owners, NULL));
	assert_true(stall.is_stall && stall.side == NT_SIDE_RECEIVER);
	wanted = SERVER + 1;
	assert_false(nt_stall_from_record(&stall, &r, &all, NULL, &owners, NULL));
	wanted = SERVER;
	peer_is_here = false;
	assert_false(nt_stall_from_record(&stall, &r, &all, NULL, &owners, NULL));
	peer_is_here = true;
	r.hold.reason = NT_HOLD_UNKNOWN;
	assert_false(nt_stall_from_record(&stall, &r, &all, NULL, &owners, NULL));
}

/* Two processes have its socket, and the one that nobody asked for wrote before. */
TEST(a_stall_of_a_socket_is_of_each_process_that_has_it)
{
	struct nt_record s = from_sender(NT_EVIDENCE_SEEN);
	struct nt_stall stall;

	s.sender.sk = 8;
	s.sender.tgid = known.tgid = 100;
	holders[0] = (struct nt_owner){.sk = 8, .tgid = 100};
	holders[1] = (struct nt_owner){.sk = 8, .tgid = 200};
	wanted = 200;
	assert_true(nt_stall_from_record(&stall, &s, &all, NULL, &owners, NULL));
	wanted = 300;
	assert_false(nt_stall_from_record(&stall, &s, &all, NULL, &owners, NULL));
}

UNIT_MAIN_WITH(set_up, NULL)
