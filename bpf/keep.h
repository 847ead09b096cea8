/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs of keep.bpf.c and user space share, and the names by which both are found. */
#pragma once

#include <linux/types.h>

struct nt_keep {
	__u32 limit_us; /* at most so long ACKs are delayed */
	__u32 port;     /* only connections with this port at 127.0.0.1; 0: all */
	__u64 set;      /* connections that have the option */
	__u64 refused;  /* those on which the kernel did not set it */
	__s64 err;      /* with which it refused the last one, -errno */
};

/* The kernel keeps 15 bytes of a program's name. */
#define NT_KEEP_PREFIX  "nt_keep_"
#define NT_KEEP_NODELAY "nt_keep_nodelay"
#define NT_KEEP_DELACK  "nt_keep_delack"

/* A program that is loaded, from the iterator of nagletrace.bpf.c. */
struct nt_kept_program {
	char name[16] __attribute__((aligned(8)));
};
