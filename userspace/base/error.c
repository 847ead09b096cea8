// SPDX-License-Identifier: GPL-2.0
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

bool nt_error_set(struct nt_error *error, enum nt_exit exit, const char *format, ...)
{
	va_list args;

	error->exit = exit;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return false;
}

bool nt_started(int err, struct nt_error *error)
{
	return !err || nt_error_set(error, NT_EXIT_FAILED, "cannot start: %s", strerror(-err));
}

enum nt_exit nt_error_log(const struct nt_error *error)
{
	nt_log("%s", error->text);
	return error->exit;
}
