/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace sample` shows the sockets that are held, with no hook attached. */
#pragma once

#include "base/error.h"
#include "terms/settings.h"

/* Looks until a signal, an option or the end of its processes stops it. Returns the exit code. */
enum nt_exit nt_sample(const struct nt_settings *settings);
