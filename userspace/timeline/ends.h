/* SPDX-License-Identifier: GPL-2.0 */
/* The connections of a timeline and their ends: finds the end of an event, and numbers bytes. */
#pragma once

#include "base/hash.h"
#include "timeline/line.h"

#define NT_TCPHDR_SYN 0x02

struct nt_timeline_connection;

/* One socket. */
struct nt_timeline_end {
	struct nt_line_end line;
	uint64_t sk;
	struct nt_timeline_connection *connection;
	bool right;
	uint64_t closed_ns; /* 0: it is open */
	bool options_known, nodelay, cork;
	bool copied_known, sent_known;
	uint32_t copied_seq;
	uint32_t sent_seq; /* after the last byte sent */
	uint64_t ack_ns;   /* when its pending ACK began */
	bool timer_fired;
	UT_hash_handle hh;
};

struct nt_timeline_connection {
	uint64_t key;
	uint32_t number;
	struct nt_tuple left;            /* the end that we saw first */
	struct nt_timeline_end *ends[2]; /* left and right */
	bool base_known[2];
	uint32_t base[2]; /* the numbers before the first byte of left and right */
	uint64_t last_ns; /* when its last line was written */
	UT_hash_handle hh;
	struct nt_timeline_connection *next; /* has the same key: the same addresses elsewhere */
};

struct nt_timeline_ends {
	struct nt_timeline_end *ends;
	struct nt_timeline_connection *connections;
	uint32_t numbers; /* connections so far */
	uint64_t swept_ns;
};

/*
 * Returns the end at which this event happened; makes it if it is new, and sets *is_new. NULL:
 * there is no memory (*is_new is true), or the event only ends something that we never saw begin,
 * and needs no line.
 */
struct nt_timeline_end *nt_timeline_end_of(struct nt_timeline_ends *ends, const struct nt_event *e,
					   bool *is_new);

/*
 * Numbers a byte that this end sends, or, if of_peer, its peer: the first byte of either direction
 * is 1.
 */
int64_t nt_timeline_number(const struct nt_timeline_end *end, bool of_peer, uint32_t seq);

/* Events were dropped: we forget what was going on, since it may have ended among them. */
void nt_timeline_ends_forget(struct nt_timeline_ends *ends);

/* Removes the ends that closed a while ago; does so only now and then. */
void nt_timeline_ends_sweep(struct nt_timeline_ends *ends, uint64_t now_ns);
void nt_timeline_ends_free(struct nt_timeline_ends *ends);
