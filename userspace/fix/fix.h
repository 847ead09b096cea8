/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include "base/error.h"
#include "terms/settings.h"

/*
 * `nagletrace fix` tries the remedy on a running process. It looks for stalls, sets TCP_NODELAY or
 * TCP_QUICKACK on the connections that stalled, looks again for as long, sets the option back, and
 * reports the difference.
 */
enum nt_exit nt_fix(const struct nt_settings *settings);
