/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What `nagletrace top` has been told: the connections that lost most time lately, each with its
 * last stall, and totals. All text in it is harmless. Bounded, whatever is told.
 */
#ifndef NT_TOP_DATA_H
#define NT_TOP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "top_rates.h"

#define NT_TOP_ROWS    512 /* connections */
#define NT_TOP_WORD    32
#define NT_TOP_NAME    96
#define NT_TOP_TEXT    512
#define NT_TOP_RATE_NS (5 * 1000000000ULL) /* a connection's rate is that of 5 to 10 s */
#define NT_TOP_UNKNOWN "unknown"           /* who owns a connection */

/* One connection as a snapshot names it; padding is zero. */
struct nt_top_key {
	int64_t pid; /* 0: not known */
	uint64_t netns;
	bool sender; /* which end ours is */
	char local[NT_TOP_NAME];
	char remote[NT_TOP_NAME];
	char cause[NT_TOP_WORD];
};

/* One stall, as its record tells it. Durations in us. */
struct nt_top_stall {
	bool known;
	bool held;    /* the sender was seen: reason, release, bytes, in_flight */
	bool put_off; /* the receiver was seen: ack_us, ack_end */
	bool ordered; /* both were: ack_after_us */
	char clock[16];
	uint64_t duration_us;
	char reason[NT_TOP_WORD], release[NT_TOP_WORD];
	uint64_t bytes, in_flight, mss;
	uint64_t ack_us, ack_bytes;
	int64_t ack_after_us; /* when the ACK was put off, from when the hold began on */
	char ack_end[NT_TOP_WORD];
};

/* How many stalls there were at a time. */
struct nt_top_mark {
	uint64_t ns, stalls;
};

struct nt_top_row {
	struct nt_top_key key;
	char comm[NT_TOP_NAME], cgroup[NT_TOP_TEXT];
	char peer[NT_TOP_NAME]; /* "java[4242]", "" where it is not known */
	uint64_t stalls, lost_us, p50_us, p99_us, max_us;
	uint64_t seen, inferred; /* of stalls, by evidence */
	double rate;             /* stalls a second */
	char pattern[NT_TOP_WORD];
	char what[NT_TOP_TEXT], why[NT_TOP_TEXT], fix[NT_TOP_TEXT], where[NT_TOP_TEXT];
	struct nt_top_stall last;
	struct nt_top_mark older, newer; /* what the rate is reckoned from */
	unsigned int missed;             /* snapshots in a row without it */
};

struct nt_top_data {
	bool any; /* a snapshot has come */
	char kernel[NT_TOP_NAME], hooks[NT_TOP_WORD], started[NT_TOP_WORD];
	uint64_t uptime_us, stalls, lost_us;
	uint64_t records_lost;
	uint64_t writes, holds, delayed_acks; /* what was looked at, stalls or not */
	uint64_t missing_hooks;               /* that the kernel lacks, or that were let go */
	uint64_t span_us;                     /* what the rows tell of */
	bool full;                            /* there may be more connections than rows */
	struct nt_top_rates rates;
	struct nt_top_row *rows;
	size_t count, room;
};

void nt_top_data_init(struct nt_top_data *data, uint64_t cell_ns);
void nt_top_data_free(struct nt_top_data *data);

/* Makes *copy the same, which was made by nt_top_data_init(). 0 or -ENOMEM. */
int nt_top_data_copy(struct nt_top_data *copy, const struct nt_top_data *data);

/* The row of a connection; NULL where there is none. It is valid until a row is added or dropped.
 */
struct nt_top_row *nt_top_data_find(const struct nt_top_data *data, const struct nt_top_key *key);

/* Likewise, added where there is none yet; NULL: no room. */
struct nt_top_row *nt_top_data_get(struct nt_top_data *data, const struct nt_top_key *key);

/* Reckons the row's rate anew, of whose stalls there have been so many by now_ns. */
void nt_top_row_count(struct nt_top_row *row, uint64_t now_ns, uint64_t stalls);

/* Drops rows that two snapshots in a row did not have. */
void nt_top_data_sweep(struct nt_top_data *data);

/*
 * Makes room for so many more rows, where there is none, by dropping rows that the latest snapshot
 * lacks: those that no snapshot has had yet, and if that is not enough, the others.
 */
void nt_top_data_make_way(struct nt_top_data *data, size_t rows);

/* Is it to be shown: has the latest snapshot got it? */
bool nt_top_row_shown(const struct nt_top_row *row);

/* "java[4242]" */
void nt_top_row_process(const struct nt_top_row *row, char *out, size_t size);

#endif /* NT_TOP_DATA_H */
