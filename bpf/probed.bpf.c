// SPDX-License-Identifier: GPL-2.0
/* The same programs for kernels that do not type their arguments, or whose verifier refuses plain
 * loads: each field takes a probed read. */
#define NT_DIRECT false
#include "nagletrace.bpf.c"
