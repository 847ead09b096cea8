// SPDX-License-Identifier: GPL-2.0
#include "top/detail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "top/ladder.h"
#include "top/columns.h"
#include "top/keys.h"

#define INDENT 10 /* the text after a label begins in this column */

/* Puts a label and its text, broken at words. Returns the next row. */
static int put_labelled(struct nt_screen *screen, int row, const char *label, const char *text)
{
	int room = screen->columns > INDENT ? screen->columns - INDENT : 1;
	char line[NT_TOP_TEXT];

	if (!*text)
		return row;
	nt_screen_put(screen, row, 0, INDENT - 1, NT_INK_BOLD, label);
	while (*text) {
		size_t n = nt_line_length(text, room, true);

		snprintf(line, sizeof(line), "%.*s", (int)n, text);
		nt_screen_put(screen, row++, INDENT, room, NT_INK_PLAIN, line);
		text += n;
		text += *text == ' ';
	}
	return row;
}

static void describe_evidence(const struct nt_top_row *row, char *out, size_t size)
{
	const char *seen = row->last.known && row->last.held && row->last.pending
				   ? "seen at both ends"
				   : "seen";

	if (!row->inferred)
		snprintf(out, size, "%s", seen);
	else if (!row->seen)
		snprintf(out, size, "inferred from this end");
	else
		snprintf(out, size, "%" PRIu64 " %s, %" PRIu64 " inferred from this end", row->seen,
			 seen, row->inferred);
}

/* Draws the processes, and how often and how long they stalled. Returns the next row. */
static int draw_numbers(struct nt_screen *screen, const struct nt_top_row *row)
{
	char process[2 * NT_TOP_NAME], excess[24], p50[24], p99[24], max[24], rate[24];

	nt_top_row_process(row, 0, process, sizeof(process));
	nt_screen_fill(screen, 0, NT_INK_BAR);
	nt_screen_print(screen, 0, 0, NT_INK_BAR, "%s  %s → %s  (%s)", process, row->key.local,
			row->key.remote, row->key.sender ? "sender" : "receiver");
	nt_top_duration(row->excess_us, excess, sizeof(excess));
	nt_top_duration(row->p50_us, p50, sizeof(p50));
	nt_top_duration(row->p99_us, p99, sizeof(p99));
	nt_top_duration(row->max_us, max, sizeof(max));
	nt_top_rate(row->rate, rate, sizeof(rate));
	nt_screen_print(screen, 1, 0, NT_INK_PLAIN,
			"%" PRIu64 " %s cost %s: p50 %s, p99 %s, max %s; now %s/s", row->stalls,
			row->stalls == 1 ? "stall" : "stalls", excess, p50, p99, max, rate);
	return 2;
}

/* Puts where the process runs: of its pod's container only the start, since both are one line so.
 */
static int put_place(struct nt_screen *screen, int at, const struct nt_container *in)
{
	char text[NT_POD_UID_LEN + NT_CONTAINER_ID_LEN + 16];

	if (!in->pod_uid[0])
		return put_labelled(screen, at, "container", in->id);
	snprintf(text, sizeof(text), "%s%s%.12s", in->pod_uid, in->id[0] ? ", container " : "",
		 in->id);
	return put_labelled(screen, at, "pod", text);
}

static int draw_advice(struct nt_screen *screen, int at, const struct nt_top_row *row)
{
	char evidence[NT_TOP_NAME];

	describe_evidence(row, evidence, sizeof(evidence));
	at = put_labelled(screen, at, "pattern", row->what);
	at = put_labelled(screen, at, "why", row->why);
	at = put_labelled(screen, at, "evidence", evidence);
	at = put_place(screen, at, &row->container);
	at = put_labelled(screen, at, "cgroup", row->cgroup);
	at = put_labelled(screen, at, "where", row->where);
	return put_labelled(screen, at, "fix", row->fix);
}

static void draw_ladder(struct nt_screen *screen, int at, int last, const struct nt_top_row *row)
{
	char lines[NT_LADDER_LINES][NT_LADDER_BYTES];
	const char *peer = row->peer[0] ? row->peer : row->key.remote;
	char process[2 * NT_TOP_NAME];
	size_t n;

	if (last - at > NT_LADDER_LEAST_LINES + 4)
		at++;
	if (!row->last.known) {
		nt_screen_print(screen, at, 0, NT_INK_PLAIN,
				"the next stall of this connection is drawn here");
		return;
	}
	nt_top_row_process(row, 0, process, sizeof(process));
	nt_screen_print(screen, at++, 0, NT_INK_BOLD, "last stall, at %s", row->last.clock);
	n = last > at ? nt_text_ladder(&row->last, row->key.sender ? process : peer,
				       row->key.sender ? peer : process, screen->columns, last - at,
				       lines)
		      : 0;
	for (size_t i = 0; i < n; i++)
		nt_screen_put(screen, at + (int)i, 0, screen->columns,
			      i ? NT_INK_PLAIN : NT_INK_BOLD, lines[i]);
}

void nt_top_draw_detail(struct nt_screen *screen, const struct nt_top_model *model,
			const struct nt_top_about *about)
{
	const struct nt_top_row *row = &model->detail;
	int at = draw_numbers(screen, row), last = screen->rows - 1;

	if (about->trouble[0])
		nt_screen_put(screen, at++, 0, screen->columns, NT_INK_WARN, about->trouble);
	if (model->paused)
		nt_screen_put(screen, at++, 0, screen->columns, NT_INK_WARN, "PAUSED");
	if (model->detail_gone)
		nt_screen_put(screen, at++, 0, screen->columns, NT_INK_WARN,
			      "it has not stalled lately; this is its last report");
	at = draw_advice(screen, at, row);
	draw_ladder(screen, at, last, row);
	nt_screen_fill(screen, last, NT_INK_BAR);
	nt_screen_put(screen, last, 0, screen->columns, NT_INK_BAR,
		      "Esc back  arrows next connection  Space pause  ? help");
}

void nt_top_draw_help(struct nt_screen *screen)
{
	int row = 0;

	nt_screen_fill(screen, row, NT_INK_BAR);
	nt_screen_put(screen, row++, 0, screen->columns, NT_INK_BAR,
		      "nagletrace top: connections by the time that held segments cost them");
	for (const struct nt_top_key_help *help = nt_top_keys_help; help->keys; help++) {
		nt_screen_put(screen, ++row, 0, 13, NT_INK_BOLD, help->keys);
		nt_screen_put(screen, row, 14, screen->columns, NT_INK_PLAIN, help->what);
	}
	row += 2;
	nt_screen_put(screen, row++, 0, screen->columns, NT_INK_PLAIN,
		      "LOST  time that prompt ACKs (or an uncork) would have saved, summed up");
	nt_screen_put(screen, row++, 0, screen->columns, NT_INK_PLAIN,
		      "P50, MAX  how long a stall lasts; RATE  stalls a second, of 5 to 10 s");
	nt_screen_put(screen, row++, 0, screen->columns, NT_INK_PLAIN,
		      "SIDE  send: this process's segments are held; recv: its ACKs are delayed");
	nt_screen_fill(screen, screen->rows - 1, NT_INK_BAR);
	nt_screen_put(screen, screen->rows - 1, 0, screen->columns, NT_INK_BAR, "any key: back");
}
