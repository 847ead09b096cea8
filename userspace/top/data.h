/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The data that `nagletrace top` shows: the connections that lost most time lately, each with its
 * last stall, and totals. All text in it is harmless, and its size is bounded, whatever its source
 * sends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "terms/container.h"
#include "base/text.h"
#include "top/rates.h"

#define NT_TOP_ROWS 512 /* connections */
/* Stalls may add as many rows again that no snapshot has yet. */
#define NT_TOP_MOST_ROWS (2 * NT_TOP_ROWS)
#define NT_TOP_WORD      32
#define NT_TOP_NAME      96
#define NT_TOP_TEXT      512
#define NT_TOP_FRAMES    8                   /* of a stack that a report shows */
#define NT_TOP_RATE_NS   (5 * 1000000000ULL) /* a connection's rate covers 5 to 10 s */
#define NT_TOP_UNKNOWN   "unknown"           /* stands for an owner that was not found */

/* The key of a connection, as a snapshot names it; padding is zero. */
struct nt_top_key {
	int64_t pid; /* 0: unknown */
	uint64_t netns;
	bool sender; /* our end is the sender */
	char local[NT_TOP_NAME];
	char remote[NT_TOP_NAME];
	char cause[NT_TOP_WORD], reason[NT_TOP_WORD]; /* "": it has no reason */
};

/* A stall, as its record describes it. Durations are in us. */
struct nt_top_stall {
	bool known;
	bool held;    /* the sender was seen; sets reason, release, bytes, in_flight */
	bool pending; /* the receiver was seen; sets ack_us, ack_release */
	bool ordered; /* both were seen; sets ack_after_us */
	bool locked;  /* the ACK left later than ack_us says, nobody saw when */
	char clock[NT_CLOCK_LEN];
	uint64_t duration_us;
	char reason[NT_TOP_WORD], release[NT_TOP_WORD];
	uint64_t bytes, in_flight, mss;
	uint64_t ack_us, ack_bytes;
	int64_t ack_after_us; /* from the hold's start to that of the pending ACK */
	char ack_release[NT_TOP_WORD];
};

/* The number of stalls at a time. */
struct nt_top_mark {
	uint64_t ns, stalls;
};

struct nt_top_row {
	struct nt_top_key key;
	char comm[NT_TOP_NAME], cgroup[NT_TOP_TEXT];
	struct nt_container container;
	char peer[NT_TOP_NAME]; /* "java[4242]", "" if unknown */
	uint64_t stalls, excess_us, p50_us, p99_us, max_us;
	uint64_t seen, inferred; /* of stalls, by evidence */
	double rate;             /* stalls a second */
	char pattern[NT_TOP_WORD];
	char what[NT_TOP_TEXT], why[NT_TOP_TEXT], fix[NT_TOP_TEXT], where[NT_TOP_TEXT];
	struct nt_top_stall last;
	struct nt_top_mark older, newer; /* the rate is computed from these */
	unsigned int missed;             /* consecutive snapshots without it */
};

struct nt_top_data {
	bool any; /* a snapshot has come */
	char kernel[NT_TOP_NAME], hooks[NT_TOP_WORD], started[NT_TOP_WORD];
	uint64_t uptime_us, stalls, excess_us;
	uint64_t records_dropped;
	uint64_t writes, holds, delayed_acks; /* counted whether they stalled or not */
	uint64_t missing_hooks;               /* that the kernel lacks, or that were detached */
	bool in_standby;                      /* the daemon has nothing attached */
	uint64_t span_us;                     /* that the rows cover */
	bool full;                            /* there may be more connections than rows */
	struct nt_top_rates rates;
	struct nt_top_row *rows;
	size_t count, room;
};

void nt_top_data_init(struct nt_top_data *data, uint64_t cell_ns);
void nt_top_data_free(struct nt_top_data *data);

/* Copies data into *copy, which nt_top_data_init() has made. Returns 0 or -ENOMEM. */
int nt_top_data_copy(struct nt_top_data *copy, const struct nt_top_data *data);

/* Returns a connection's row, valid until a row is added or dropped; NULL where there is none. */
struct nt_top_row *nt_top_data_find(const struct nt_top_data *data, const struct nt_top_key *key);

/* Does the same, and adds the row where there is none; NULL: no room. */
struct nt_top_row *nt_top_data_get(struct nt_top_data *data, const struct nt_top_key *key);

/* Says whether to show the row: the latest snapshot must have it. */
bool nt_top_row_shown(const struct nt_top_row *row);

/* Writes "java[4242]" into columns, as nt_format_named(). */
void nt_top_row_process(const struct nt_top_row *row, size_t columns, char *out, size_t size);
