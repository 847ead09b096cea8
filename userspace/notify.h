/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells systemd what a service is doing, by the protocol of sd_notify(3), which is stable and small
 * enough to need no library.
 */
#ifndef NT_NOTIFY_H
#define NT_NOTIFY_H

#include <stdint.h>

/* Sends state, as "READY=1"; nothing where no service manager asked. 0 or -errno. */
int nt_notify(const char *state);

/* How often to send "WATCHDOG=1" (ns): half of what the service manager waits. 0: it does not. */
uint64_t nt_notify_interval_ns(void);

#endif /* NT_NOTIFY_H */
