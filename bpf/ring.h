/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ring buffer from which user space takes records. packaging/gadget/ has one of its own in
 * place of this.
 */
#ifndef NT_RING_H
#define NT_RING_H

#include "config.h"

#define RECORDS_BYTES (1 << 20)

/* What a record takes of it. */
#define RECORD_BYTES (sizeof(struct nt_record) + 8)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RECORDS_BYTES);
} records SEC(".maps");

static __always_inline u64 ring_used_bytes(void)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);
}

/* Returns a record, which ring_submit() has to get; NULL: no room. */
static __always_inline struct nt_record *ring_reserve(void)
{
	return bpf_ringbuf_reserve(&records, sizeof(struct nt_record), 0);
}

static __always_inline void ring_submit(struct nt_record *r)
{
	bpf_ringbuf_submit(r, 0);
}

#endif /* NT_RING_H */
