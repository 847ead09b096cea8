// SPDX-License-Identifier: GPL-2.0
/* Writes a line for each event: the connection, the time, and at the left or right what one end
 * did. */
#include "output/timeline.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"

#define COLUMN      32
#define WIDE_COLUMN 60
#define NARROW      80 /* columns of a terminal */
#define BEFORE      16 /* of these, for the connection and the time */
#define ADDRESSES   16
#define TCPHDR_SYN  0x02
#define TCPHDR_FIN  0x01
#define TCPHDR_RST  0x04

static void add_flags(char *text, size_t size, uint8_t flags)
{
	size_t n = strlen(text);

	snprintf(text + n, size - n, "%s%s%s", flags & TCPHDR_SYN ? " SYN" : "",
		 flags & TCPHDR_FIN ? " FIN" : "", flags & TCPHDR_RST ? " RST" : "");
}

/* Writes "sent 1:7 (6 B) ack 1" or "got ACK 7"; brief: only where the segment begins. */
static void describe_segment(const struct nt_line *line, bool brief, char *text, size_t size)
{
	const char *verb = line->kind == NT_LINE_SENT ? "sent" : "got";
	uint8_t flags = line->event->flags;
	char rest[80];

	if (line->retransmission)
		verb = "sent again";
	snprintf(rest, sizeof(rest), ":%" PRId64 " (%u B) ack %" PRId64, line->seq + line->bytes,
		 line->bytes, line->ack);
	if (brief)
		snprintf(rest, sizeof(rest), " (%u B)", line->bytes);
	if (line->bytes)
		snprintf(text, size, "%s %" PRId64 "%s", verb, line->seq, rest);
	else if (flags & (TCPHDR_SYN | TCPHDR_RST))
		snprintf(text, size, "%s", verb);
	else
		snprintf(text, size, "%s ACK %" PRId64, verb, line->ack);
	add_flags(text, size, flags);
}

static const char *or_unknown(const char *word)
{
	return word ? word : "unknown";
}

/* Describes an event. brief: in fewer columns, where there are too few. */
static void describe(const struct nt_line *line, bool brief, char *text, size_t size)
{
	const struct nt_event *e = line->event;
	struct nt_duration lasted = nt_duration(line->duration_ns);

	switch (line->kind) {
	case NT_LINE_WRITE:
		snprintf(text, size, "write %u B", line->bytes);
		break;
	case NT_LINE_READ:
		snprintf(text, size, "read %u B", line->bytes);
		break;
	case NT_LINE_SENT:
	case NT_LINE_RECEIVED:
		describe_segment(line, brief, text, size);
		break;
	case NT_LINE_HOLD_BEGIN:
		snprintf(text, size, brief ? "holds %u B: %s" : "holds %u B: %s, %u B in flight",
			 line->bytes, or_unknown(nt_hold_reason_word(e->reason)),
			 e->in_flight_bytes);
		break;
	case NT_LINE_HOLD_END:
		if (line->bytes)
			snprintf(text, size, "releases %u B: %s, %s", line->bytes,
				 or_unknown(nt_release_word(e->release)), lasted.text);
		else
			snprintf(text, size, "has waited for the ACK: %s, %s",
				 or_unknown(nt_hold_reason_word(e->reason)), lasted.text);
		break;
	case NT_LINE_ACK_DELAYED:
		snprintf(text, size, "delays the ACK");
		break;
	case NT_LINE_ACK_TIMER:
		snprintf(text, size, "delayed-ACK timer fires");
		break;
	case NT_LINE_ACK_SENT:
		snprintf(text, size, "ACK delayed %s: %s", lasted.text,
			 or_unknown(nt_ack_release_word(line->how)));
		break;
	case NT_LINE_OPTIONS:
		snprintf(text, size, "nodelay %s, cork %s", e->nodelay ? "on" : "off",
			 e->cork ? "on" : "off");
		break;
	case NT_LINE_STATE:
		snprintf(text, size, "%s",
			 e->flags == NT_TCP_ESTABLISHED ? "established" : "closed");
		break;
	default:
		snprintf(text, size, "?");
	}
}

static void format_name(const struct nt_process *process, char *name, size_t size)
{
	char comm[NT_ESCAPED_LEN(NT_USER_LEN)];

	if (!process->tgid) {
		snprintf(name, size, "(process not known)");
		return;
	}
	nt_escape(process->comm, sizeof(process->comm), comm, sizeof(comm));
	nt_format_named(comm, process->tgid, NT_USER_LEN + 8, name, size);
}

/* Prints on two lines which process and address a column stands for. */
static void print_end(const struct nt_writer *writer, FILE *out, const struct nt_line *line)
{
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 24], local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN];
	char both[2 * NT_ADDRESS_LEN + 8];

	format_name(&line->end->process, name, sizeof(name));
	nt_format_address(&line->end->tuple, true, local, sizeof(local));
	nt_format_address(&line->end->tuple, false, remote, sizeof(remote));
	snprintf(both, sizeof(both), "%s → %s", local, remote);
	if (!writer->wide)
		nt_shorten(both, NARROW - ADDRESSES);
	fprintf(out, "%3u       %5s %s\n%*s%s\n", line->connection, line->right ? "right" : "left",
		name, ADDRESSES, "", both);
}

/* Adds what one end keeps back: "; left holds 7 B (nagle)". */
static void add_waits(const struct nt_line_end *end, const char *side, char *text, size_t size)
{
	size_t n = strlen(text);

	if (!end)
		return;
	if (end->holds)
		n += snprintf(text + n, size - n, "; %s holds %u B (%s)", side, end->held_bytes,
			      or_unknown(nt_hold_reason_word(end->reason)));
	if (end->acking && n < size)
		snprintf(text + n, size - n, "; %s delays its ACK", side);
}

static void print_gap(const struct nt_writer *writer, FILE *out, const struct nt_line *line)
{
	char text[256] = "";

	add_waits(line->right ? line->other : line->end, "left", text, sizeof(text));
	add_waits(line->right ? line->end : line->other, "right", text, sizeof(text));
	if (!writer->wide)
		nt_shorten(text, NARROW - BEFORE - 12);
	fprintf(out, "%3u     · · · · · %s%s\n", line->connection, nt_duration(line->gap_ns).text,
		text);
}

int nt_text_timeline_stall(const struct nt_writer *writer, FILE *out, const struct nt_stall *stall,
			   struct nt_stacks *stacks)
{
	char name[NT_ESCAPED_LEN(NT_COMM_LEN) + 16];

	format_name(nt_stall_process(stall, stall->side), name, sizeof(name));
	fprintf(out, "     * * * %s of %s: %s", stall->is_stall ? "stall" : "hold",
		nt_duration(stall->duration_ns).text, name);
	if (stall->is_stall)
		fprintf(out, " lost %s (%s)", nt_duration(stall->excess_ns).text,
			or_unknown(nt_evidence_word(stall->record.evidence)));
	fputc('\n', out);
	return 0;
}

int nt_text_timeline_line(const struct nt_writer *writer, FILE *out, const struct nt_line *line)
{
	int column = writer->wide ? WIDE_COLUMN : COLUMN;
	char text[128];
	size_t room;

	if (line->kind == NT_LINE_DROPPED) {
		fprintf(out, "     ! ! ! %" PRIu64 " %s dropped here: there was no room\n",
			line->dropped, line->dropped == 1 ? "event" : "events");
		return nt_flush(out);
	}
	if (line->first_of_end)
		print_end(writer, out, line);
	if (line->gap_ns)
		print_gap(writer, out, line);
	room = writer->wide ? sizeof(text) : (size_t)(NARROW - BEFORE - (line->right ? column : 0));
	describe(line, false, text, sizeof(text));
	if (strlen(text) > room)
		describe(line, true, text, sizeof(text));
	if (!writer->wide)
		nt_shorten(text, room);
	fprintf(out, "%3u %11.6f %*s%s\n", line->connection, line->since_ns / 1e9,
		line->right ? column : 0, "", text);
	return nt_flush(out);
}
