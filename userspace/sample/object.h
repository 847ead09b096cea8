/* SPDX-License-Identifier: GPL-2.0 */
/* Loads the programs of bpf/sample.bpf.c that a way of looking takes. */
#pragma once

#include <stdbool.h>
#include "terms/settings.h"

struct sample_bpf;

/*
 * open: that which looks at the sockets that processes have open; else those which look at the
 * sockets of a namespace, and for their owners. Returns 0 or -errno, with *skel NULL.
 */
int nt_sample_load(struct sample_bpf **skel, const struct nt_settings *settings, bool open);
