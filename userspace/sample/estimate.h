/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sums up what looks at the sockets found, in bounded memory, and estimates the time lost: the mean
 * number of sockets that a look finds in a stall is the time that they lose each second (Little's
 * law), if looks come at random times.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"
#include "bpf/nagletrace.h"
#include "capture/processes.h"
#include "terms/tuple.h"

/*
 * An ACK that is later than the smallest round trip by this may be a delayed one. It is half of the
 * tracer's limit (NT_INFER_NS in bpf/judge.h): the looks at a stall between this and twice this
 * count double, for those before, and so a stall of NT_LATE_NS * 2 and more counts in full.
 */
#define NT_LATE_NS 15000000ULL

/* The most connections that we keep. When there are more, those that lose time stay. */
#define NT_MOST_SEEN 1024

/* A connection with this number of late looks, none of them as late as this, has a slow path. */
#define NT_SEEN_ENOUGH  8
#define NT_SLOW_PATH_NS 25000000ULL

/* Did the user ask for the process of a connection? */
enum nt_wanted {
	NT_WANTED_UNKNOWN = 0, /* its owner was not found yet */
	NT_WANTED_YES,
	NT_WANTED_NO,
};

/* What looks that found a connection's ACK late count for. */
struct nt_late_looks {
	uint64_t looks;
	uint64_t weight, squares; /* the sums of their weights */
	uint64_t latest_ns;       /* the most by which the ACK was late */
};

/* A connection that was seen held. */
struct nt_seen {
	struct nt_socket_key key;
	UT_hash_handle hh;
	struct nt_sampled last;    /* as it was found late last, or seen last if never late */
	struct nt_process process; /* tgid 0: not found */
	enum nt_wanted wanted;
	uint64_t looks;                /* found it held */
	struct nt_late_looks ended;    /* at holds that ended since, as far as a pure ACK came */
	struct nt_late_looks open;     /* at the last hold, of which nobody knows what ends it */
	uint32_t data_came, acks_came; /* as of that hold */
	bool ended_by_data;            /* has a late hold ended without a pure ACK? */
	uint64_t longest_ns;           /* the longest hold for that reason, as far as it was seen */
	bool nameless;                 /* we looked, and found no process */
	uint64_t idle_looks; /* found nothing in flight, by sock_diag: a cork, and not Nagle */
};

struct nt_estimate {
	struct nt_seen *seen; /* a hash */
	uint64_t looks;
	uint64_t began_ns;
	uint64_t cost_ns; /* CPU time that the looks took */
	uint64_t folded;  /* looks at connections that found no room: the excess is what it is at
			     least */
};

/* The excess of a second, in us; with its error at 95 % confidence. */
struct nt_excess {
	uint64_t us, error_us;
};

void nt_estimate_clear(struct nt_estimate *estimate);

/* Returns how late the ACK is that this socket waits for, in ns; 0: it does not wait for a late
 * one. */
uint64_t nt_sampled_late_ns(const struct nt_sampled *sampled);

/* A cork that holds bytes for this time is on its way to its ceiling, twice this or more. */
#define NT_LONG_CORK_NS 100000000ULL

/* The first: may this hold be a stall? The second: will it look like one when another ns have
 * passed and nothing has released it? */
bool nt_sampled_is_suspicious(const struct nt_sampled *sampled);
bool nt_sampled_may_stall_in(const struct nt_sampled *sampled, uint64_t ns);

/* Returns for how many looks this one counts that found the socket in a stall; 0: in none. */
uint64_t nt_sampled_weight(const struct nt_sampled *sampled);

/* Adds a socket that a look found held; nt_estimate.looks counts the looks themselves. Returns its
 * connection; NULL: there was no room. */
struct nt_seen *nt_estimate_add(struct nt_estimate *estimate, const struct nt_sampled *sampled);

/* Returns the looks that found this connection in what may be a stall. */
struct nt_late_looks nt_seen_late(const struct nt_seen *seen);

/* Does Nagle's algorithm with a delayed ACK stall this connection, as far as it was seen? */
bool nt_seen_stalls(const struct nt_seen *seen);

/* With fewer looks than this, an estimate without a stall could still mean 300 ms a second. */
#define NT_FEW_LOOKS 10

/* How much does this connection lose, or all together? looks: of the estimate, at least 1. */
struct nt_excess nt_seen_excess(const struct nt_seen *seen, uint64_t looks);
struct nt_excess nt_estimate_excess(const struct nt_estimate *estimate);

/*
 * Returns the connections that the user asked for, those that lose most first; *count: how many.
 * The caller frees the array; NULL: none, or no memory.
 */
struct nt_seen **nt_estimate_sorted(const struct nt_estimate *estimate, size_t *count);
