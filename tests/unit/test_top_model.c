// SPDX-License-Identifier: GPL-2.0
// links: userspace/top/model.c userspace/top/keys.c userspace/top/data.c userspace/top/rates.c userspace/base/text.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <curses.h>
#include "unit.h"
#include "top/keys.h"

#define ESCAPE 27

static struct nt_top_model model;

/* A connection in the data; process p has the pids 100 + p. */
static struct nt_top_row *add(int pid, int port, uint64_t stalls, uint64_t excess_us,
			      uint64_t max_us)
{
	struct nt_top_key key;
	struct nt_top_row *row;

	memset(&key, 0, sizeof(key));
	key.pid = pid;
	key.sender = true;
	snprintf(key.local, sizeof(key.local), "127.0.0.1:%d", port);
	snprintf(key.remote, sizeof(key.remote), "10.0.0.9:6379");
	row = nt_top_data_get(&model.live, &key);
	assert_non_null(row);
	snprintf(row->comm, sizeof(row->comm), "program-%c", 'z' - pid % 26);
	snprintf(row->pattern, sizeof(row->pattern), "write_write_read");
	row->stalls = stalls;
	row->excess_us = excess_us;
	row->max_us = max_us;
	row->p50_us = max_us / 2;
	row->rate = stalls / 10.0;
	return row;
}

static int set_up(void **state)
{
	nt_top_model_init(&model, 1000000000);
	model.fit = 10;
	add(1, 5001, 10, 400, 90);
	add(1, 5002, 30, 300, 50);
	add(2, 5003, 20, 500, 70);
	add(3, 5004, 5, 100, 200);
	nt_top_update(&model);
	return 0;
}

static int tear_down(void **state)
{
	nt_top_model_free(&model);
	return 0;
}

/* The local ports of the lines, in their order; of processes the pids. */
static const char *shown(void)
{
	static char text[200];
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < model.count; i++) {
		const struct nt_top_key *key = &model.lines[i].row->key;

		if (model.view == NT_TOP_PROCESSES)
			at += snprintf(text + at, sizeof(text) - at, "%d ", (int)key->pid);
		else
			at += snprintf(text + at, sizeof(text) - at, "%s ",
				       strchr(key->local, ':') + 3);
	}
	return text;
}

static void press(const char *keys)
{
	for (; *keys; keys++)
		nt_top_key(&model, (unsigned char)*keys);
}

TEST(what_lost_most_time_stands_first)
{
	assert_string_equal(shown(), "03 01 02 04 ");
}

TEST(each_column_sorts_and_r_reverses)
{
	press("s");
	assert_string_equal(shown(), "02 03 01 04 ");
	press("m");
	assert_string_equal(shown(), "04 01 03 02 ");
	press("5");
	assert_string_equal(shown(), "04 01 03 02 ");
	press("a");
	assert_string_equal(shown(), "02 03 01 04 ");
	press("o"); /* program-w, -x, -y, -y: then by lost time */
	assert_string_equal(shown(), "04 03 01 02 ");
	press("l");
	assert_string_equal(shown(), "03 01 02 04 ");
	press("r");
	assert_string_equal(shown(), "04 02 01 03 ");
	press("s"); /* another column begins with the most */
	assert_string_equal(shown(), "02 03 01 04 ");
}

TEST(less_and_greater_go_to_the_columns_beside)
{
	press("<");
	assert_int_equal(model.sort, NT_TOP_BY_STALLS);
	press("<<<");
	assert_int_equal(model.sort, NT_TOP_BY_NAME);
	press(">>>>>>>>");
	assert_int_equal(model.sort, NT_TOP_BY_RATE);
	press("<<");
	assert_int_equal(model.sort, NT_TOP_BY_P50);
	press("p"); /* processes have no median */
	assert_int_equal(model.sort, NT_TOP_BY_EXCESS);
	press(">");
	assert_int_equal(model.sort, NT_TOP_BY_MAX);
	press("5");
	assert_int_equal(model.sort, NT_TOP_BY_MAX);
}

TEST(processes_sum_up_their_connections)
{
	press("p");
	assert_string_equal(shown(), "1 2 3 ");
	assert_int_equal(model.lines[0].connections, 2);
	assert_int_equal(model.lines[0].stalls, 40);
	assert_int_equal(model.lines[0].excess_us, 700);
	assert_int_equal(model.lines[0].max_us, 90);
	assert_true(model.lines[0].rate == 4);
	press("\t\t");
	assert_int_equal(model.view, NT_TOP_CONNECTIONS);
}

TEST(problems_sum_up_processes_of_one_name_with_one_pattern)
{
	add(27, 5005, 7, 450, 95); /* has the name of process 1 */
	snprintf(add(1, 5006, 1, 50, 60)->pattern, NT_TOP_WORD, "one_way");
	press("b");
	assert_string_equal(shown(), "05 03 04 06 ");
	assert_int_equal(model.lines[0].connections, 3);
	assert_int_equal(model.lines[0].processes, 2);
	assert_int_equal(model.lines[0].stalls, 47);
	assert_int_equal(model.lines[0].excess_us, 1150);
	assert_int_equal(model.lines[0].max_us, 95);
	press("\n");
	assert_string_equal(shown(), "05 01 02 ");
	nt_top_key(&model, ESCAPE);
	assert_int_equal(model.view, NT_TOP_PROBLEMS);
	assert_int_equal(model.cursor, 0);
	press("j\n");
	nt_top_key(&model, ESCAPE);
	assert_int_equal(model.cursor, 1);
}

TEST(enter_goes_into_a_process_then_into_a_connection_and_escape_back)
{
	press("p\n");
	assert_string_equal(shown(), "01 02 ");
	press("j\n");
	assert_int_equal(model.page, NT_TOP_DETAIL);
	assert_string_equal(model.detail.key.local, "127.0.0.1:5002");
	nt_top_key(&model, ESCAPE);
	assert_int_equal(model.page, NT_TOP_TABLE);
	assert_string_equal(shown(), "01 02 ");
	nt_top_key(&model, ESCAPE);
	assert_string_equal(shown(), "1 2 3 ");
	press("j\n"); /* the second process */
	nt_top_key(&model, ESCAPE);
	assert_int_equal(model.cursor, 1);
}

TEST(a_filter_matches_name_pid_address_and_pattern)
{
	press("/PROGRAM-X\n");
	assert_string_equal(shown(), "03 ");
	assert_false(model.typing);
	nt_top_key(&model, ESCAPE);
	assert_string_equal(shown(), "03 01 02 04 ");
	press("/[1]\n");
	assert_string_equal(shown(), "01 02 ");
	nt_top_key(&model, ESCAPE);
	press("/5004\n");
	assert_string_equal(shown(), "04 ");
	nt_top_key(&model, ESCAPE);
	press("/10.0.0.9\n");
	assert_string_equal(shown(), "03 01 02 04 ");
	press("/q"); /* while typing, letters are letters */
	assert_false(model.quit);
	assert_string_equal(shown(), "");
	nt_top_key(&model, ESCAPE);
	assert_string_equal(shown(), "03 01 02 04 ");
}

TEST(a_filter_is_edited_by_characters_and_never_overruns)
{
	press("/aö\x7f\x7f");
	assert_string_equal(model.filter, "");
	nt_top_key(&model, KEY_BACKSPACE);
	for (int i = 0; i < 3 * NT_TOP_FILTER; i++)
		nt_top_key(&model, 'a');
	assert_int_equal(strlen(model.filter), NT_TOP_FILTER - 1);
	nt_top_key(&model, KEY_F(1));
	nt_top_key(&model, '\t');
	assert_int_equal(strlen(model.filter), NT_TOP_FILTER - 1);
}

TEST(the_chosen_line_is_followed_but_the_first_is_a_place)
{
	press("s");
	assert_int_equal(model.cursor, 0);
	press("lj"); /* 5001 */
	assert_string_equal(model.chosen.key.local, "127.0.0.1:5001");
	press("s");
	assert_int_equal(model.cursor, 2);
	assert_string_equal(model.chosen.key.local, "127.0.0.1:5001");
	model.live.count = 1; /* the others are gone */
	nt_top_update(&model);
	assert_int_equal(model.cursor, 0);
}

TEST(the_chosen_line_is_always_on_the_screen)
{
	for (int i = 0; i < 100; i++)
		add(50, 6000 + i, 1, 50 - i % 50, 1);
	nt_top_update(&model);
	for (int i = 0; i < 120; i++) {
		nt_top_key(&model, i % 7 == 6 ? KEY_NPAGE : KEY_DOWN);
		assert_true(model.cursor >= model.first && model.cursor < model.first + model.fit);
		assert_true(model.cursor < model.count);
	}
	assert_int_equal(model.cursor, model.count - 1);
	model.fit = 3; /* the window shrinks */
	nt_top_move(&model, 0);
	assert_int_equal(model.first, model.count - 3);
	nt_top_key(&model, KEY_HOME);
	assert_true(model.cursor == 0 && model.first == 0);
	nt_top_key(&model, KEY_UP);
	nt_top_key(&model, KEY_PPAGE);
	assert_int_equal(model.cursor, 0);
}

TEST(paused_it_shows_what_was_and_then_what_is)
{
	press(" ");
	assert_true(model.paused);
	add(4, 5005, 99, 9999, 9);
	nt_top_update(&model);
	assert_string_equal(shown(), "03 01 02 04 ");
	press("s"); /* what is shown can still be looked at */
	assert_string_equal(shown(), "02 03 01 04 ");
	press("l ");
	assert_string_equal(shown(), "05 03 01 02 04 ");
}

/* A key may come between what is told and what is made of it. */
TEST(lines_outlive_what_is_added)
{
	for (int i = 0; i < 600; i++)
		add(60, 6000 + i, 1, 1, 1);
	press("jj");
	assert_string_equal(model.chosen.key.local, "127.0.0.1:5002");
	press("\n");
	assert_string_equal(model.detail.key.local, "127.0.0.1:5002");
}

TEST(a_connection_that_is_told_of_no_more_stays_where_it_is_looked_at)
{
	press("\n");
	assert_string_equal(model.detail.key.local, "127.0.0.1:5003");
	model.live.rows[2].stalls = 21;
	nt_top_update(&model);
	assert_int_equal(model.detail.stalls, 21);
	model.live.rows[2].missed = 1;
	nt_top_update(&model);
	assert_true(model.detail_gone);
	assert_int_equal(model.detail.stalls, 21);
}

TEST(arrows_go_from_one_connection_to_the_next)
{
	press("\nj");
	assert_int_equal(model.page, NT_TOP_DETAIL);
	assert_string_equal(model.detail.key.local, "127.0.0.1:5001");
}

TEST(with_nothing_told_no_key_does_harm)
{
	model.live.count = 0;
	nt_top_update(&model);
	for (int page = 0; page < 3; page++) {
		for (int key = 0; key < KEY_MAX; key++)
			nt_top_key(&model, key);
		model.page = page;
		model.typing = false;
	}
	model.page = NT_TOP_TABLE;
	model.quit = model.typing = false;
	press("q");
	assert_true(model.quit);
}

TEST(q_leaves_a_page_before_it_leaves)
{
	press("?");
	assert_int_equal(model.page, NT_TOP_HELP);
	press("q");
	assert_int_equal(model.page, NT_TOP_TABLE);
	press("\n?q"); /* help over a connection */
	assert_int_equal(model.page, NT_TOP_DETAIL);
	press("q");
	assert_false(model.quit);
	press("q");
	assert_true(model.quit);
}

UNIT_MAIN_WITH(set_up, tear_down)
