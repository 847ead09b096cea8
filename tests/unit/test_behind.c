// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/behind.c userspace/capture/owner_list.c
#include "unit.h"
#include "base/clock.h"
#include "capture/behind.h"

#define CLIENT  10
#define RELAY   20
#define BACKEND 30
#define OTHER   40

#define FRONT   80
#define BACK    9000

#define NOW     (100 * NT_SECOND_NS)
#define LATELY  (10 * NT_SECOND_NS)

static bool wanted(void *context, uint32_t tgid)
{
	return tgid == *(const uint32_t *)context;
}

static struct nt_tuple tuple_of(uint16_t local, uint16_t remote, uint32_t netns)
{
	return (struct nt_tuple){.local_port = local, .remote_port = remote, .netns = netns};
}

static void add(struct nt_owner_list *list, uint32_t tgid, uint16_t local, uint16_t remote)
{
	struct nt_owner owner = {
		.sk = 64 * (list->count + 1), .tgid = tgid, .tuple = tuple_of(local, remote, 1)};
	uint32_t nobody = 0;

	assert_int_equal(nt_owner_list_add(list, &owner, wanted, &nobody), 0);
}

static void connect_both(struct nt_owner_list *list, uint32_t client, uint16_t from,
			 uint32_t server, uint16_t to)
{
	add(list, client, from, to);
	add(list, server, to, from);
}

/* A client is connected to a relay, which is connected to a backend; another client is too. */
static struct nt_owner_list a_relay(void)
{
	struct nt_owner_list list = {};

	add(&list, RELAY, FRONT, 0);
	add(&list, BACKEND, BACK, 0);
	connect_both(&list, CLIENT, 50001, RELAY, FRONT);
	connect_both(&list, OTHER, 50002, RELAY, FRONT);
	connect_both(&list, RELAY, 50003, BACKEND, BACK);
	connect_both(&list, OTHER, 50004, BACKEND, BACK);
	return list;
}

/* Is this end of a connection behind the process asked for? */
static bool is_behind(uint32_t asked, uint32_t tgid, uint16_t local, uint16_t remote)
{
	struct nt_tuple tuple = tuple_of(local, remote, 1);
	struct nt_owner_list list = a_relay();
	struct nt_behind behind = {};
	bool is;

	nt_behind_take(&behind, &list, wanted, &asked, NOW);
	is = nt_behind_has(&behind, tgid, &tuple, NOW);
	nt_behind_clear(&behind);
	nt_owner_list_clear(&list);
	return is;
}

TEST(what_a_relay_connected_to_is_behind_its_client)
{
	assert_true(is_behind(CLIENT, RELAY, 50003, BACK));
}

TEST(another_client_of_the_same_server_is_not)
{
	assert_false(is_behind(CLIENT, RELAY, FRONT, 50002));
	assert_false(is_behind(OTHER, BACKEND, BACK, 50003));
}

TEST(neither_is_what_clients_of_the_process_do)
{
	assert_false(is_behind(BACKEND, RELAY, 50003, BACK));
	assert_false(is_behind(BACKEND, RELAY, FRONT, 50001));
	assert_false(is_behind(RELAY, CLIENT, 50001, FRONT));
}

TEST(neither_is_who_has_nothing_to_do_with_it)
{
	assert_false(is_behind(CLIENT, OTHER, 50004, BACK));
	assert_false(is_behind(CLIENT, BACKEND, BACK, 50003));
}

/* A service may close its listener, and serve on who has connected before. */
TEST(neither_is_who_came_through_a_listener_that_is_closed)
{
	struct nt_tuple tuple = tuple_of(50003, BACK, 1);
	struct nt_owner_list list = {};
	struct nt_behind behind = {};
	uint32_t asked = CLIENT;

	add(&list, BACKEND, BACK, 0);
	connect_both(&list, CLIENT, 50001, RELAY, FRONT);
	connect_both(&list, RELAY, 50003, BACKEND, BACK);
	nt_behind_take(&behind, &list, wanted, &asked, NOW);
	assert_false(nt_behind_has(&behind, RELAY, &tuple, NOW));
	nt_behind_clear(&behind);
	nt_owner_list_clear(&list);
}

TEST(nothing_is_behind_before_a_look)
{
	struct nt_tuple tuple = tuple_of(50003, BACK, 1);
	struct nt_behind behind = {};
	struct nt_owner_list none = {};
	uint32_t asked = CLIENT;

	assert_false(nt_behind_has(&behind, RELAY, &tuple, NOW));
	nt_behind_take(&behind, &none, wanted, &asked, NOW);
	assert_false(nt_behind_has(&behind, RELAY, &tuple, NOW));
	nt_behind_clear(&behind);
}

TEST(a_relay_stays_one_for_some_seconds)
{
	struct nt_owner_list list = a_relay(), none = {};
	struct nt_tuple tuple = tuple_of(50003, BACK, 1);
	struct nt_behind behind = {};
	uint32_t asked = CLIENT;

	nt_behind_take(&behind, &list, wanted, &asked, NOW);
	nt_behind_take(&behind, &none, wanted, &asked, NOW + LATELY);
	assert_true(nt_behind_has(&behind, RELAY, &tuple, NOW + LATELY));
	assert_false(nt_behind_has(&behind, RELAY, &tuple, NOW + LATELY + 1));
	/* others than it take its room */
	add(&none, OTHER, FRONT, 0);
	for (uint32_t i = 0; i < NT_MOST_RELAYS; i++)
		connect_both(&none, CLIENT, 40000 + i, 1000 + i, FRONT);
	nt_behind_take(&behind, &none, wanted, &asked, NOW + LATELY + 1);
	assert_int_equal(behind.n_relays, NT_MOST_RELAYS);
	assert_false(nt_behind_has(&behind, RELAY, &tuple, NOW + LATELY));
	nt_behind_clear(&behind);
	nt_owner_list_clear(&list);
	nt_owner_list_clear(&none);
}

UNIT_MAIN()
