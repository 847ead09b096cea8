// SPDX-License-Identifier: GPL-2.0
/* A shared object that test_symbols.c has built, stripped and loaded. */
static __attribute__((noinline, used)) int hidden_function(int n)
{
	return n * 3 + 1;
}

int exported_function(int n)
{
	return hidden_function(n) + 1;
}
