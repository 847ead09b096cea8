/* SPDX-License-Identifier: GPL-2.0 */
/* What cmocka wants before its own header, the tests, each of which lists itself, and the main() of
 * every unit test: argv[1] chooses by name. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define MS 1000000ULL

/* of ASan; gcc comes without the header */
extern size_t __sanitizer_get_current_allocated_bytes(void);

#define UNIT_MOST_TESTS 100

static struct CMUnitTest unit_tests[UNIT_MOST_TESTS];
static size_t n_unit_tests;

static void unit_add(const char *name, CMUnitTestFunction test)
{
	if (n_unit_tests == UNIT_MOST_TESTS) {
		fprintf(stderr, "more than %d tests: raise UNIT_MOST_TESTS\n", UNIT_MOST_TESTS);
		abort();
	}
	unit_tests[n_unit_tests++] = (struct CMUnitTest){.name = name, .test_func = test};
}

/* The body follows. The constructors of a file run in the order in which they stand there. */
#define TEST(name)                                                \
	static void name(void **state);                           \
	__attribute__((constructor)) static void add_##name(void) \
	{                                                         \
		unit_add(#name, name);                            \
	}                                                         \
	static void name(void **state)

/* Fixtures for each test, and for all together. */
static int unit_main(int argc, char **argv, CMFixtureFunction set_up, CMFixtureFunction tear_down,
		     CMFixtureFunction begin, CMFixtureFunction end)
{
	for (size_t i = 0; i < n_unit_tests; i++) {
		unit_tests[i].setup_func = set_up;
		unit_tests[i].teardown_func = tear_down;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests("tests", unit_tests, n_unit_tests, begin, end);
}

#define UNIT_MAIN_WITH(set_up, tear_down)                                    \
	int main(int argc, char **argv)                                      \
	{                                                                    \
		return unit_main(argc, argv, set_up, tear_down, NULL, NULL); \
	}

#define UNIT_MAIN() UNIT_MAIN_WITH(NULL, NULL)
