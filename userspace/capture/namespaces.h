/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The network namespaces of this host, and two counts of the delayed-ACK timers in each: the
 * kernel's own, and that of our programs. We keep no namespace alive: neither a process nor a
 * descriptor of ours stays in one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bpf/nagletrace.h"
#include "attach/iterator.h"

struct nt_tracer;

/*
 * The most threads that a scan lists, a few for each namespace: 2 MB. Once more than half of them
 * are needed, it leaves out the others.
 */
#define NT_NAMESPACES_LISTED 131072

/* The most namespaces of which our programs count timers: the entries of the map timers_seen. */
#define NT_NAMESPACES_COUNTED 4096

struct nt_namespaces {
	const struct nt_tracer *tracer;
	struct bpf_link *iterator;
	struct nt_iterator reader;
	struct nt_netns *list; /* from the last scan, sorted by id, then thread */
	size_t count, room;
	bool complete;                           /* the list has all namespaces of the kernel */
	bool full;                               /* the scan found more than the list may have */
	uint64_t counted[NT_NAMESPACES_COUNTED]; /* as the last scan began */
	size_t n_counted;
	char text[32768];
};

/* The delayed-ACK timers that have sent their ACK since the namespace exists. */
struct nt_timers {
	uint64_t counted;     /* by the kernel: TcpExtDelayedACKs */
	uint64_t seen_before; /* by our programs, read before the kernel's counter */
	uint64_t seen;        /* by our programs, read after the kernel's counter */
	uint64_t file;        /* inode of that counter's file: no two namespaces share one */
};

/* Returns 0, or -errno if this kernel does not show the namespaces to this process. */
int nt_namespaces_open(struct nt_namespaces *namespaces, const struct nt_tracer *tracer);
void nt_namespaces_close(struct nt_namespaces *namespaces);

/* Lists the namespaces anew. Returns 0 or -errno. */
int nt_namespaces_scan(struct nt_namespaces *namespaces);

/* Reads the counts of a listed namespace; false: no process lives in it whose /proc we can read. */
bool nt_namespaces_read(struct nt_namespaces *namespaces, uint64_t id, struct nt_timers *timers);

/* Did our programs find no room for a namespace? Then we do not know what they saw. */
bool nt_namespaces_overflowed(const struct nt_namespaces *namespaces);

/* Gives back the room of the namespace's count. */
void nt_namespaces_forget(struct nt_namespaces *namespaces, uint64_t id);

/* Finds the value of TcpExt's DelayedACKs in the text of a netstat file; false: it is not there. */
bool nt_namespaces_parse(const char *text, uint64_t *delayed_acks);
