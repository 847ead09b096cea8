/* SPDX-License-Identifier: GPL-2.0 */
/* What cmocka wants before its own header, and the main() of every unit test: argv[1] chooses by
 * name. */
#ifndef NT_UNIT_H
#define NT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define UNIT_MAIN(tests)                                          \
	int main(int argc, char **argv)                           \
	{                                                         \
		if (argc > 1)                                     \
			cmocka_set_test_filter(argv[1]);          \
		return cmocka_run_group_tests(tests, NULL, NULL); \
	}

#endif /* NT_UNIT_H */
