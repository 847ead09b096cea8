// SPDX-License-Identifier: GPL-2.0
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include <bpf/libbpf.h>

void nt_log(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("nagletrace: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list args)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, args);
}

static int print_all(enum libbpf_print_level level, const char *format, va_list args)
{
	return vfprintf(stderr, format, args);
}

static int print_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

void nt_quiet_libbpf(int verbose)
{
	libbpf_set_print(verbose > 1 ? print_all : verbose ? print_libbpf : print_nothing);
}
