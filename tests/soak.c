// SPDX-License-Identifier: GPL-2.0
/*
 * Ten million stalls of four hours, fed through what the daemon keeps as fast as it goes: memory
 * must be flat. Time is the stalls' own; names and connections change all the time. Prints what the
 * heap and the process had at each tenth as one line of JSON; tests/monitoring/test_soak.py judges.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "summary/series.h"
#include "summary/window.h"

#define STALLS      10000000u
#define SPAN_NS     (4 * 3600 * 1000000000ULL)
#define HALF_NS     (300 * 1000000000ULL)
#define NAMES       5000
#define CONNECTIONS 1000000
#define MAX_SERIES  1000

static uint64_t dice_state = 1;

/* xorshift64: the same numbers in every run */
static uint32_t dice(uint32_t sides)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return (uint32_t)(dice_state >> 32) % sides;
}

/* In each tenth other processes are at work than before. */
static void roll(struct nt_stall *stall, uint32_t tenth)
{
	uint32_t connection = dice(CONNECTIONS), name = connection % NAMES + tenth * NAMES;
	struct nt_process *process;

	memset(stall, 0, sizeof(*stall));
	stall->is_stall = true;
	stall->side = connection % 3 ? NT_SIDE_SENDER : NT_SIDE_RECEIVER;
	stall->record.cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	stall->record.evidence = connection % 2 ? NT_EVIDENCE_SEEN : NT_EVIDENCE_INFERRED;
	memcpy(stall->record.sender.tuple.local_addr, &connection, sizeof(connection));
	stall->record.sender.tuple.local_port = (__u16)connection;
	stall->record.receiver.tuple = stall->record.sender.tuple;
	process = stall->side == NT_SIDE_SENDER ? &stall->sender : &stall->receiver;
	process->tgid = (pid_t)(1000 + name);
	snprintf(process->comm, sizeof(process->comm), "process-%u", name);
	stall->duration_ns = 1000000 + dice(300000000);
	stall->excess_ns = stall->duration_ns - 50000;
}

static long resident_kb(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%*d %ld", &pages) != 1)
		exit(1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE) / 1024;
}

/* What a reader asks for; its order is looked at, so that it is not left out. */
static uint64_t read_all(const struct nt_window *window, const struct nt_series_set *series)
{
	struct nt_connection **sorted;
	struct nt_window_half recent;
	uint64_t sum;

	nt_window_sum(window, &recent);
	sorted = nt_aggregate_sorted(&recent.stalls);
	sum = sorted ? nt_percentile(sorted, 1, 99) : 0;
	for (const struct nt_series *s = series->list; s; s = s->hh.next)
		sum += s->stalls;
	free(sorted);
	nt_aggregate_clear(&recent.stalls);
	return sum;
}

int main(void)
{
	struct nt_counts counts = {};
	struct nt_series_set series;
	struct nt_window window;
	uint64_t read = 0, turned = 0;

	nt_series_init(&series, MAX_SERIES, false);
	nt_window_init(&window, NT_MAX_CONNECTIONS, 0, &counts);
	printf("{\"stalls\":%u,\"tenths\":[", STALLS);
	for (uint32_t i = 1; i <= STALLS; i++) {
		uint64_t now = SPAN_NS / STALLS * i;
		struct nt_stall stall;

		roll(&stall, i / (STALLS / 10));
		stall.record.time_ns = now;
		nt_window_add(&window, &stall);
		nt_series_add(&series, &stall, now);
		if (now > turned + HALF_NS) {
			nt_window_turn(&window, now, &counts);
			turned = now;
		}
		if (i % 10000 == 0)
			read += read_all(&window, &series);
		if (i % (STALLS / 10) == 0)
			printf("%s{\"heap_bytes\":%zu,\"resident_kb\":%ld,\"series\":%zu,"
			       "\"connections\":%zu}",
			       i > STALLS / 10 ? "," : "", mallinfo2().uordblks, resident_kb(),
			       nt_series_count(&series),
			       nt_aggregate_count(&window.halves[window.older].stalls));
	}
	printf("],\"folded\":%" PRIu64 ",\"evicted\":%" PRIu64 ",\"read\":%" PRIu64
	       ",\"cpu_s\":%.3f}\n",
	       series.folded, series.evicted, read, (double)clock() / CLOCKS_PER_SEC);
	nt_window_clear(&window);
	nt_series_clear(&series);
	return 0;
}
