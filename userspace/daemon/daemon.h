/* SPDX-License-Identifier: GPL-2.0 */
/* `nagletrace daemon` stays attached, aggregates in bounded memory, and answers on a socket. */
#pragma once

#include "base/error.h"
#include "terms/settings.h"

/* Runs until SIGTERM or SIGINT. */
enum nt_exit nt_daemon(const struct nt_settings *settings);
