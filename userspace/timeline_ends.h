/* SPDX-License-Identifier: GPL-2.0 */
/* The connections of a timeline and their ends: which event is whose, and how bytes are numbered.
 */
#ifndef NT_TIMELINE_ENDS_H
#define NT_TIMELINE_ENDS_H

#include "hash.h"
#include "timeline.h"

#define NT_TCPHDR_SYN 0x02

struct nt_timeline_connection;

/* One socket. */
struct nt_timeline_end {
	struct nt_line_end line;
	uint64_t sk;
	struct nt_timeline_connection *connection;
	bool right;
	uint64_t closed_ns; /* 0: it is not */
	bool options_known, nodelay, cork;
	bool copied_known, sent_known;
	uint32_t copied_seq;
	uint32_t sent_seq; /* after the last byte sent */
	uint64_t ack_ns;   /* when its ACK was put off */
	bool timer_fired;
	UT_hash_handle hh;
};

struct nt_timeline_connection {
	uint64_t key;
	uint32_t number;
	struct nt_tuple left;            /* the end that was seen first */
	struct nt_timeline_end *ends[2]; /* left and right */
	bool base_known[2];
	uint32_t base[2]; /* before the first byte, of what the left end sends and the right one */
	uint64_t last_ns; /* when something was told of it */
	UT_hash_handle hh;
	struct nt_timeline_connection *next; /* of the same key: the same addresses elsewhere */
};

struct nt_timeline_ends {
	struct nt_timeline_end *ends;
	struct nt_timeline_connection *connections;
	uint32_t numbers; /* connections so far */
	uint64_t swept_ns;
};

/*
 * The end at which this happened, made where it is new, *is_new. NULL: no memory (*is_new true), or
 * it only ends what was never seen, which is not worth a word.
 */
struct nt_timeline_end *nt_timeline_end_of(struct nt_timeline_ends *ends, const struct nt_event *e,
					   bool *is_new);

/* The number of a byte that this end sends, or, of its peer: the first of either way is 1. */
int64_t nt_timeline_number(const struct nt_timeline_end *end, bool of_peer, uint32_t seq);

/* Events were lost: what was going on may have ended among them. */
void nt_timeline_ends_forget(struct nt_timeline_ends *ends);

/* Removes those that were closed a while ago, now and then. */
void nt_timeline_ends_sweep(struct nt_timeline_ends *ends, uint64_t now_ns);
void nt_timeline_ends_free(struct nt_timeline_ends *ends);

#endif /* NT_TIMELINE_ENDS_H */
