/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace top` shows a live view that fills the terminal. */
#pragma once

#include "base/error.h"
#include "terms/settings.h"

/* Shows the daemon's data, or traces by itself, until q, a signal or --duration. */
enum nt_exit nt_top(const struct nt_settings *settings);
