// SPDX-License-Identifier: GPL-2.0
#include "output/slow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "output/advice.h"

static int by_time(const void *a, const void *b)
{
	const struct nt_slow_row *x = *(const struct nt_slow_row *const *)a;
	const struct nt_slow_row *y = *(const struct nt_slow_row *const *)b;

	return (x->slow.duration_ns < y->slow.duration_ns) -
	       (x->slow.duration_ns > y->slow.duration_ns);
}

size_t nt_slow_choose(const struct nt_counts *counts, uint64_t least_ns,
		      const struct nt_slow_row *chosen[NT_SLOW_ROWS])
{
	size_t n = 0;

	for (size_t i = 0; i < counts->n_slow; i++)
		if (counts->slow[i].slow.duration_ns >= least_ns)
			chosen[n++] = &counts->slow[i];
	qsort(chosen, n, sizeof(*chosen), by_time);
	return n < NT_SLOW_SHOWN ? n : NT_SLOW_SHOWN;
}

struct nt_process nt_slow_process(const struct nt_slow_row *row)
{
	struct nt_process process = {.tgid = row->slow.tgid};

	if (row->key.uid == NT_KERNEL_UID)
		nt_process_of_kernel(row->key.comm, &process);
	else
		memcpy(process.comm, row->key.comm, sizeof(row->key.comm));
	return process;
}

void nt_slow_name(const struct nt_slow_row *row, char *out, size_t size)
{
	struct nt_process process = nt_slow_process(row);

	if (process.tgid || !process.comm[0])
		nt_format_process(&process, out, size);
	else
		nt_escape(process.comm, sizeof(process.comm), out, size);
}

static void advise_window(const struct nt_slow *slow, char text[NT_SLOW_TEXT])
{
	if (slow->window && slow->window < slow->mss)
		snprintf(text, NT_SLOW_TEXT,
			 "the peer's receive window (%u B) is smaller than a segment (%u B): leave "
			 "SO_RCVBUF there to the kernel, or make it several segments",
			 slow->window, slow->mss);
	else
		snprintf(text, NT_SLOW_TEXT,
			 "the peer's receive window is full: it reads more slowly than this end "
			 "writes, or its SO_RCVBUF is small");
}

void nt_slow_advise(const struct nt_slow_row *row, char text[NT_SLOW_TEXT])
{
	static const char *const advice[NT_HOLD_REASONS] = {
		[NT_HOLD_NAGLE] =
			"Nagle holds the small segment until the ACK comes, here with the peer's "
			"answer, after a round trip, or a little late: TCP_NODELAY, or one write "
			"for the message, helps if the peer works on several requests at a time",
		[NT_HOLD_AUTOCORK] = "the kernel waits for the device to send what it has: see "
				     "net.ipv4.tcp_autocorking and the device's queue",
		[NT_HOLD_TSO_DEFER] =
			"the kernel waits to fill a larger burst (TSO): write more at "
			"once",
		[NT_HOLD_CWND] =
			"the congestion window is full: it is small after loss and after idle time "
			"(net.ipv4.tcp_slow_start_after_idle, initcwnd of the route); TCP_NODELAY "
			"does not help",
		[NT_HOLD_PACING] = "the bytes are paced: SO_MAX_PACING_RATE, or the congestion "
				   "control's own rate",
		[NT_HOLD_TSQ] = "the device or its queue is full: it sends more slowly than this "
				"end writes (tc -s qdisc shows its rate and queue)",
	};

	if (row->key.reason == NT_HOLD_NAGLE && row->key.uid == NT_KERNEL_UID)
		snprintf(
			text, NT_SLOW_TEXT,
			"Nagle holds the small segment until the ACK comes; the kernel itself uses this "
			"socket: see the options of the mount or the module");
	else if (row->key.reason == NT_HOLD_RWND)
		advise_window(&row->slow, text);
	else
		snprintf(text, NT_SLOW_TEXT, "%s", advice[row->key.reason]);
}
