// SPDX-License-Identifier: GPL-2.0
// links: userspace/output/slow.c
// links: userspace/capture/origin.c userspace/base/siphash.c
// links: userspace/capture/behind.c userspace/capture/stall.c userspace/capture/owners.c userspace/capture/owner_list.c userspace/capture/asked.c
// links: userspace/terms/container.c userspace/base/each_process.c userspace/capture/processes.c userspace/capture/find_cgroup.c userspace/capture/standby.c userspace/output/json.c userspace/base/text.c userspace/terms/tuple.c userspace/terms/words.c
// links: userspace/output/advice.c userspace/summary/aggregate.c userspace/summary/groups.c
// links: userspace/attach/counts.c userspace/attach/hooks.c
// links: userspace/attach/kernel.c userspace/attach/loading.c userspace/attach/tracer.c userspace/attach/types.c userspace/base/error.c userspace/base/numbers.c userspace/base/log.c
// links: userspace/privileges/privileges.c
// links: userspace/capture/audit.c userspace/attach/iterator.c userspace/capture/namespaces.c userspace/output/timeline_json.c
/*
 * The shape of a stall and of a hold, by side, as it is written. tests/unit/stalls.jsonl has the
 * same lines, which exporters/tests/test_schema.py holds against the schema and decodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "unit.h"
#include "output/writer.h"

#define CONTAINER "6d1f0a2c9b8e7f5d4c3b2a19080716253443526170899aabbccddeeff0011223"
#define POD       "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467"
#define TIME      "\"time\":\"2026-11-20T20:15:03.123456Z\""

static const struct nt_frame frame = {
	.ip = 0x7f0010, .module = "/lib/libnet.so", .offset = 0x10, .symbol = "NET_Send"};

/* Each hold of the client has a stack of one frame. */
size_t nt_stacks_get(const struct nt_stacks *stacks, __s32 handle, const struct nt_frame **frames)
{
	(void)stacks, (void)handle;
	*frames = &frame;
	return 1;
}

static struct nt_tuple tuple_of(uint8_t local, uint16_t local_port, uint8_t remote,
				uint16_t remote_port)
{
	return (struct nt_tuple){
		.local_addr = {10, 0, 0, local},
		.remote_addr = {10, 0, 0, remote},
		.local_port = local_port,
		.remote_port = remote_port,
		.family = AF_INET,
		.netns = 4026531840,
	};
}

/* What the kernel tells of a write of the client's that waited for the server's ACK. */
static struct nt_stall stall_of(enum nt_side side, bool sender, bool receiver)
{
	const struct nt_process client = {.tgid = 4242, .comm = "java", .cgroup = "/app"};
	const struct nt_process server = {
		.tgid = 4200, .comm = "server", .container = {.id = CONTAINER, .pod_uid = POD}};
	struct nt_stall stall = {
		.side = side,
		.duration_ns = sender ? 40312000 : 40102000,
		.excess_ns = sender ? 40277000 : 40102000,
		.min_rtt_us = 35,
		.is_stall = true,
		.record = {.cause = sender ? NT_CAUSE_NAGLE_DELAYED_ACK : NT_CAUSE_DELAYED_ACK,
			   .hold = {.reason = NT_HOLD_UNKNOWN},
			   .evidence = sender && receiver ? NT_EVIDENCE_SEEN : NT_EVIDENCE_INFERRED,
			   .pattern = sender ? NT_PATTERN_WRITE_WRITE_READ : NT_PATTERN_PEER_HOLDS},
	};

	if (sender) {
		stall.record.sender = (struct nt_end){.tuple = tuple_of(1, 51234, 2, 8000),
						      .tgid = 4242,
						      .tid = 4243,
						      .present = 1,
						      .pingpong = 1};
		stall.record.hold = (struct nt_hold_part){.begin_ns = 100 * MS,
							  .end_ns = 100 * MS + 40312000,
							  .bytes = 7,
							  .in_flight_bytes = 6,
							  .writes = 1,
							  .write_bytes = 7,
							  .sent_one = 1,
							  .mss = 1448,
							  .way_us = 35,
							  .reason = NT_HOLD_NAGLE,
							  .release = NT_RELEASE_ACK};
		stall.sender = client;
	}
	if (receiver) {
		stall.record.receiver = (struct nt_end){
			.tuple = tuple_of(2, 8000, 1, 51234), .present = 1, .quick = 1, .cork = 1};
		stall.record.ack = (struct nt_ack_part){.begin_ns = 100 * MS - 20000,
							.end_ns = 100 * MS + 40082000,
							.bytes = 6,
							.release = NT_ACK_TIMER,
							.reason = NT_ACK_REASON_PINGPONG};
		stall.receiver = server;
	}
	return stall;
}

/* A hold whose wait was nobody's fault, or one that the other end contradicts. */
static struct nt_stall no_stall(struct nt_stall stall, bool contradicted)
{
	stall.is_stall = false;
	stall.contradicted = contradicted;
	stall.record.cause = NT_CAUSE_INVALID;
	stall.record.evidence = NT_EVIDENCE_INVALID;
	if (!contradicted)
		stall.record.pattern =
			stall.record.sender.present ? NT_PATTERN_ACK_CLOCKED : NT_PATTERN_INVALID;
	return stall;
}

/* The line of a stall, with a time that is the same at each run. */
static void write_line(FILE *out, struct nt_stall stall)
{
	struct nt_stacks *some = (void *)&stall; /* never looked at: see nt_stacks_get() */
	size_t length;
	char *line, *time;
	FILE *memory = open_memstream(&line, &length);

	assert_int_equal(nt_json_writer.stall(&nt_json_writer, memory, &stall, some), 0);
	fclose(memory);
	time = strstr(line, "\"time\":");
	assert_non_null(time);
	memcpy(time, TIME, strlen(TIME));
	fputs(line, out);
	free(line);
}

/* Compares what was told with the lines of a file, and frees it. */
static void assert_recorded(char *told, const char *name)
{
	FILE *recorded = fopen(name, "r");
	char *expected = NULL;
	size_t room = 0;

	assert_non_null(recorded);
	assert_true(getdelim(&expected, &room, '\0', recorded) > 0);
	assert_string_equal(told, expected);
	fclose(recorded);
	free(expected);
	free(told);
}

TEST(a_stall_has_two_ends_of_the_same_keys)
{
	char *told;
	size_t length;
	FILE *out = open_memstream(&told, &length);

	write_line(out, stall_of(NT_SIDE_SENDER, true, true));
	write_line(out, stall_of(NT_SIDE_RECEIVER, true, true));
	write_line(out, stall_of(NT_SIDE_SENDER, true, false));
	write_line(out, stall_of(NT_SIDE_RECEIVER, false, true));
	write_line(out, no_stall(stall_of(NT_SIDE_SENDER, true, false), false));
	write_line(out, no_stall(stall_of(NT_SIDE_RECEIVER, true, true), false));
	write_line(out, no_stall(stall_of(NT_SIDE_SENDER, true, false), true));
	write_line(out, no_stall(stall_of(NT_SIDE_RECEIVER, false, true), true));
	fclose(out);
	assert_recorded(told, "tests/unit/stalls.jsonl");
}

/* A late ACK, or a stall of a session that says where it comes from, and knows the ACK. */
TEST(what_other_hosts_join_by_is_told)
{
	const struct nt_origin origin = {.host = "web\n1",
					 .boot_id = "f6cc27e1-6ebd-45f6-9934-d36d1f1d7f74"};
	struct nt_stall stalls[] = {stall_of(NT_SIDE_SENDER, true, false),
				    stall_of(NT_SIDE_RECEIVER, false, true),
				    stall_of(NT_SIDE_RECEIVER, false, true)};
	char *told;
	size_t length;
	FILE *out = open_memstream(&told, &length);

	stalls[2].record.kind = NT_RECORD_LATE_ACK;
	stalls[2].is_stall = false;
	for (size_t i = 0; i < sizeof(stalls) / sizeof(stalls[0]); i++) {
		stalls[i].origin = &origin;
		stalls[i].number = i + 1;
		stalls[i].ack_id = 0x0123456789abcdefULL;
		stalls[i].record.ack.limit_us = 200000;
		write_line(out, stalls[i]);
	}
	fclose(out);
	assert_recorded(told, "tests/unit/joinable.jsonl");
}

UNIT_MAIN()
