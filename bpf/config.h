/* SPDX-License-Identifier: GPL-2.0 */
/* What user space sets between open and load. The defaults load and work by themselves. */
#ifndef NT_CONFIG_H
#define NT_CONFIG_H

#include "nagletrace.h"

const volatile struct nt_config nt_config = {
	.min_ns = 1000000,
	.tick_ns = 4000000,
};

#endif /* NT_CONFIG_H */
