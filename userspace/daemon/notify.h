/* SPDX-License-Identifier: GPL-2.0 */
/* Reports the state of a service to systemd by the protocol of sd_notify(3), which is stable and
 * small enough to need no library. */
#pragma once

#include <stdint.h>

/* Sends a state such as "READY=1"; sends nothing where no service manager asked for it. Waits at
 * most 100 ms for room. Returns 0 or -errno. */
int nt_notify(const char *state);

/* Returns how often to send "WATCHDOG=1" (ns): half the service manager's limit. 0: it sets
 * none. */
uint64_t nt_notify_interval_ns(void);
