/* SPDX-License-Identifier: GPL-2.0 */
/* In the place of userspace/capture/owners.c: nobody has the sockets of these tests open. */
#pragma once

#include "capture/owners.h"

const struct nt_owner *nt_owners_find(struct nt_owners *owners, const struct nt_end *end,
				      __u64 since_ns, size_t *count)
{
	*count = 0;
	return NULL;
}

bool nt_owners_must_look(const struct nt_owners *owners, const struct nt_end *end, __u64 since_ns)
{
	return false;
}
