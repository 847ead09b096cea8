// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/owner_list.c
#include <string.h>
#include <sys/socket.h>
#include "unit.h"
#include "capture/owner_list.h"

#define ALICE   1000
#define MALLORY 65534

static struct nt_owner owner_of(uint64_t sk, uint32_t tgid, uint64_t share)
{
	return (struct nt_owner){
		.sk = sk,
		.share = share,
		.tgid = tgid,
		.tuple = {.local_port = sk % 50000, .remote_port = sk / 50000, .netns = 1},
	};
}

/* Asked for are the numbers from 1000 on. */
static bool wanted(void *context, uint32_t tgid)
{
	++*(unsigned int *)context;
	return tgid >= 1000;
}

static unsigned int questions;

static void add(struct nt_owner_list *list, uint64_t sk, uint32_t tgid, uint64_t share)
{
	struct nt_owner owner = owner_of(sk, tgid, share);

	assert_int_equal(nt_owner_list_add(list, &owner, wanted, &questions), 0);
}

static size_t find(const struct nt_owner_list *list, uint64_t sk,
		   struct nt_owner found[NT_OWNERS_OF_SOCKET])
{
	struct nt_end end = {.sk = sk, .tuple = owner_of(sk, 0, 0).tuple};

	return nt_owner_list_find(list, &end, found);
}

TEST(a_process_is_there_once_for_all_its_descriptors)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	struct nt_owner_list list = {};

	for (unsigned int i = 0; i < 100000; i++) {
		add(&list, 64 + 64 * (i % 2), 7, ALICE);
		add(&list, 64, 5, ALICE);
	}
	assert_int_equal(list.count, 3);
	assert_int_equal(find(&list, 64, found), 2);
	assert_int_equal(found[0].tgid, 5);
	assert_int_equal(found[1].tgid, 7);
	assert_int_equal(find(&list, 128, found), 1);
	assert_int_equal(find(&list, 192, found), 0);
	nt_owner_list_clear(&list);
}

TEST(a_child_on_its_way_to_an_exec_is_an_owner_only_alone)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET], child = owner_of(64, 9, ALICE);
	struct nt_owner_list list = {};

	child.passing = true;
	assert_int_equal(nt_owner_list_add(&list, &child, wanted, &questions), 0);
	assert_int_equal(find(&list, 64, found), 1);
	assert_int_equal(found[0].tgid, 9);
	add(&list, 64, 5, ALICE);
	add(&list, 64, 12, ALICE);
	assert_int_equal(find(&list, 64, found), 2);
	assert_int_equal(found[0].tgid, 5);
	assert_int_equal(found[1].tgid, 12);
	nt_owner_list_clear(&list);
}

TEST(of_many_processes_those_asked_for_and_the_last_stay)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	struct nt_owner_list list = {};

	for (uint32_t tgid = 1; tgid <= 200; tgid++)
		add(&list, 64, tgid, ALICE);
	add(&list, 64, 1001, ALICE);
	for (uint32_t tgid = 201; tgid <= 300; tgid++)
		add(&list, 64, tgid, ALICE);
	assert_int_equal(list.count, NT_OWNERS_OF_SOCKET);
	assert_int_equal(find(&list, 64, found), NT_OWNERS_OF_SOCKET);
	assert_int_equal(found[NT_OWNERS_OF_SOCKET - 1].tgid, 1001);
	assert_int_equal(found[NT_OWNERS_OF_SOCKET - 2].tgid, 300);
	/* where there is room for all nobody is asked */
	questions = 0;
	for (uint32_t tgid = 1; tgid <= NT_OWNERS_OF_SOCKET; tgid++)
		add(&list, 128, tgid, ALICE);
	assert_int_equal(questions, 0);
	nt_owner_list_clear(&list);
}

TEST(the_sockets_of_one_user_do_not_push_out_those_of_another)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	struct nt_owner_list list = {};
	size_t memory = __sanitizer_get_current_allocated_bytes();

	for (uint64_t i = 0; i < 500; i++)
		add(&list, 64 + 64 * i, 1, ALICE);
	for (uint64_t i = 0; i < 1000000; i++)
		add(&list, 1 << 30 | 64 * i, 2, MALLORY);
	for (uint64_t i = 500; i < 1000; i++)
		add(&list, 64 + 64 * i, 1, ALICE);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(find(&list, 64 + 64 * i, found), 1);
	assert_true(list.count <= NT_MOST_OWNERS);
	assert_true(__sanitizer_get_current_allocated_bytes() - memory < 26 << 20);
	nt_owner_list_clear(&list);
	assert_int_equal(__sanitizer_get_current_allocated_bytes(), memory);
}

/* SECURITY.md says how many, and how much memory they take. */
TEST(as_many_fit_as_the_documents_say)
{
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	struct nt_owner_list list = {};
	size_t memory = __sanitizer_get_current_allocated_bytes();

	for (uint64_t i = 0; i < 262144; i++)
		add(&list, 64 + 64 * (i / 8), 1 + i % 8, ALICE);
	assert_int_equal(list.count, 262144);
	assert_int_equal(find(&list, 64 * 262144 / 8, found), 8);
	memory = __sanitizer_get_current_allocated_bytes() - memory;
	assert_in_range(memory, 22 << 20, 24 << 20);
	add(&list, 1 << 30, 1, ALICE);
	assert_in_range(list.count, 262144 / 8 * 7, 262144);
	nt_owner_list_clear(&list);
}

TEST(the_other_end_is_found_by_its_addresses)
{
	struct nt_owner owner = {.sk = 64, .tgid = 1}, other = {.sk = 128, .tgid = 2};
	struct nt_owner_list list = {};
	const struct nt_owner *peer;

	owner.tuple = (struct nt_tuple){.local_addr = {10, 0, 0, 1},
					.remote_addr = {10, 0, 0, 2},
					.local_port = 80,
					.remote_port = 4000,
					.netns = 1};
	other.tuple = (struct nt_tuple){.local_addr = {10, 0, 0, 2},
					.remote_addr = {10, 0, 0, 1},
					.local_port = 4000,
					.remote_port = 80,
					.netns = 2};
	assert_null(nt_owner_list_find_peer(&list, &owner.tuple));
	nt_owner_list_add(&list, &owner, wanted, &questions);
	assert_null(nt_owner_list_find_peer(&list, &owner.tuple));
	for (uint64_t i = 0; i < 5000; i++)
		add(&list, 256 + 64 * i, 3, ALICE);
	nt_owner_list_add(&list, &other, wanted, &questions);
	peer = nt_owner_list_find_peer(&list, &owner.tuple);
	assert_non_null(peer);
	assert_int_equal(peer->tgid, 2);
	nt_owner_list_clear(&list);
}

/* The same addresses are in use in two namespaces, as 127.0.0.1 is in each. */
static uint32_t other_end(const struct nt_tuple *client, uint32_t netns)
{
	struct nt_owner server = {.tuple = {.local_port = client->remote_port,
					    .remote_port = client->local_port,
					    .family = client->family}};
	struct nt_tuple asked = *client;
	struct nt_owner_list list = {};
	const struct nt_owner *peer;
	uint32_t tgid;

	memcpy(server.tuple.local_addr, client->remote_addr, 16);
	memcpy(server.tuple.remote_addr, client->local_addr, 16);
	for (server.tuple.netns = 1; server.tuple.netns <= 2; server.tuple.netns++) {
		server.sk = server.tgid = server.tuple.netns;
		nt_owner_list_add(&list, &server, wanted, &questions);
	}
	asked.netns = netns;
	peer = nt_owner_list_find_peer(&list, &asked);
	tgid = peer ? peer->tgid : 0;
	nt_owner_list_clear(&list);
	return tgid;
}

TEST(of_two_namespaces_with_the_same_addresses_the_own_one_has_the_other_end)
{
	struct nt_tuple tuple = {.local_addr = {10, 0, 0, 1},
				 .remote_addr = {10, 0, 0, 2},
				 .local_port = 4000,
				 .remote_port = 80,
				 .family = AF_INET};
	const struct nt_tuple v6 = {.local_addr[15] = 1,
				    .remote_addr[15] = 1,
				    .local_port = 4000,
				    .remote_port = 80,
				    .family = AF_INET6};

	assert_int_equal(other_end(&tuple, 1), 1);
	assert_int_equal(other_end(&tuple, 2), 2);
	assert_int_not_equal(other_end(&tuple, 3), 0);
	/* such a connection leaves no namespace */
	tuple.local_addr[0] = tuple.remote_addr[0] = 127;
	assert_int_equal(other_end(&tuple, 1), 1);
	assert_int_equal(other_end(&tuple, 3), 0);
	assert_int_equal(other_end(&v6, 2), 2);
	assert_int_equal(other_end(&v6, 3), 0);
}

UNIT_MAIN()
