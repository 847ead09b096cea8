// SPDX-License-Identifier: GPL-2.0
#include "output/advice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"

void nt_format_process(const struct nt_process *process, char *out, size_t size)
{
	char name[NT_ESCAPED_LEN(NT_USER_LEN)];

	nt_escape(process->comm, sizeof(process->comm), name, sizeof(name));
	nt_format_named(process->tgid ? name : "unknown", process->tgid, 0, out, size);
}

void nt_format_frame(const struct nt_frame *frame, char *out, size_t size)
{
	const char *file = frame->module ? strrchr(frame->module, '/') : NULL;

	if (frame->symbol) {
		nt_escape(frame->symbol, strlen(frame->symbol), out, size);
	} else if (frame->module) {
		nt_escape(file ? file + 1 : frame->module, 128, out, size);
		snprintf(out + strlen(out), size - strlen(out), "+0x%" PRIx64, frame->offset);
	} else {
		snprintf(out, size, "0x%" PRIx64, frame->ip);
	}
}

/* These digits distinguish them for a person; `docker ps` shows as many of a container's ID. */
#define SHORT_POD       8
#define SHORT_CONTAINER 12

void nt_format_placed(const struct nt_process *process, bool full, char *out, size_t size)
{
	const struct nt_container *in = &process->container;
	size_t at;

	nt_format_process(process, out, size);
	at = strlen(out);
	if (!process->tgid || (!in->id[0] && !in->pod_uid[0]))
		return;
	if (!full)
		snprintf(out + at, size - at, " in %s %.*s…", in->pod_uid[0] ? "pod" : "container",
			 in->pod_uid[0] ? SHORT_POD : SHORT_CONTAINER,
			 in->pod_uid[0] ? in->pod_uid : in->id);
	else
		snprintf(out + at, size - at, " in%s%s%s%s", in->pod_uid[0] ? " pod " : "",
			 in->pod_uid, in->id[0] ? " container " : "", in->id);
}

/* Describes the held bytes by the writes that wrote them, as far as these are known. */
static void describe_held(const struct nt_hold_part *hold, char *out, size_t size)
{
	if (!hold->writes)
		snprintf(out, size, "%u B", hold->bytes);
	else if (hold->writes == 1)
		snprintf(out, size, "write %u B", hold->bytes);
	else if (hold->write_bytes)
		snprintf(out, size, "%u writes of %u B", hold->writes, hold->write_bytes);
	else
		snprintf(out, size, "%u writes, %u B", hold->writes, hold->bytes);
}

/* Describes what is in flight, and what is held, by the writes that wrote it. */
static void describe_writes(const struct nt_hold_part *hold, char *out, size_t size)
{
	char held[64];

	if (hold->writes == 1 && hold->write_bytes > hold->bytes) {
		snprintf(out, size, "write %u B, of which the last %u B are held",
			 hold->write_bytes, hold->bytes);
		return;
	}
	describe_held(hold, held, sizeof(held));
	snprintf(out, size,
		 hold->sent_one ? "write %u B (sent), %s (held)" : "%u B in flight, %s (held)",
		 hold->in_flight_bytes, held);
}

/* Describes the pattern by what is in flight and held. */
static void describe_pattern(const struct nt_stall *stall, unsigned int pattern, char *out,
			     size_t size)
{
	static const char *const behind[NT_PATTERNS] = {
		[NT_PATTERN_WRITE_WRITE_READ] = ", waits for the reply",
		[NT_PATTERN_SEVERAL_WRITES] =
			": parts of one message, or answers to requests that came together",
		[NT_PATTERN_ONE_WAY] = ": messages one after the other, with no data from the peer "
				       "in between",
		[NT_PATTERN_HANDSHAKE_FLIGHT] = ", at the start of the connection or before "
						"TCP_NODELAY was set",
		[NT_PATTERN_LOCKED_SOCKET] = "; the receiver was busy in a call on the socket when "
					     "its ACK was due",
		[NT_PATTERN_SMALL_CWND] = ": what is in flight fills the congestion window",
	};
	const struct nt_hold_part *hold = &stall->record.hold;
	char writes[128];

	describe_writes(hold, writes, sizeof(writes));
	switch (pattern) {
	case NT_PATTERN_REPLY_TAIL:
		snprintf(out, size, "%s, less than a segment of %u B", writes, hold->mss);
		break;
	case NT_PATTERN_CORK_CEILING:
		describe_held(hold, writes, sizeof(writes));
		snprintf(out, size, "%s corked by %s, and nothing came to release that", writes,
			 hold->reason == NT_HOLD_MSG_MORE ? "MSG_MORE" : "TCP_CORK");
		break;
	case NT_PATTERN_FULL_BUFFER:
		snprintf(out, size,
			 "%u B in flight fill the send buffer, and a write waits for room",
			 hold->in_flight_bytes);
		break;
	case NT_PATTERN_SERVER_FIRST:
		snprintf(
			out, size,
			"connect(), and the server speaks first, as soon as the handshake is over");
		break;
	case NT_PATTERN_LINGERING_CLOSE:
		snprintf(out, size, "close() with SO_LINGER, and the peer does not close");
		break;
	case NT_PATTERN_PEER_HOLDS:
		snprintf(out, size,
			 "%u B came in, their ACK was delayed, and more came one round trip "
			 "after it",
			 stall->record.ack.bytes);
		break;
	default:
		snprintf(out, size, "%s%s", writes, behind[pattern] ? behind[pattern] : "");
	}
}

/* Describes the receiver's part, as far as it was seen. */
static void describe_delay(const struct nt_stall *stall, const char *receiver, char *out,
			   size_t size)
{
	static const char *const delays[NT_ACK_REASONS] = {
		[NT_ACK_REASON_QUICKACK_OFF] =
			"%s switched TCP_QUICKACK off and delays that ACK %s)",
		[NT_ACK_REASON_QUICK_EXHAUSTED] =
			"%s has used up its quick ACKs and delays that one %s)",
		[NT_ACK_REASON_LEFT_UNREAD] = "%s read a part and left the rest, so that its read "
					      "sent no ACK, and delays that one %s)",
		[NT_ACK_REASON_DELACK_MAX] =
			"%s delays that ACK %s, as its socket or route limits it)",
	};
	const struct nt_ack_part *ack = &stall->record.ack;
	const char *delay = ack->reason < NT_ACK_REASONS ? delays[ack->reason] : NULL;
	char until[48];

	if (ack->reason == NT_ACK_REASON_QUICKACK_OFF &&
	    stall->record.hold.reason == NT_HOLD_HANDSHAKE)
		delay = "%s asked for that and delays the ACK %s)";
	if (!delay)
		delay = ack->release == NT_ACK_TIMER
				? "%s, in interactive mode, delays that ACK %s)"
				: "%s delays that ACK %s)";
	snprintf(until, sizeof(until), "%s (%s",
		 ack->release == NT_ACK_TIMER  ? "until its timer fires"
		 : ack->release == NT_ACK_READ ? "until it reads"
					       : "for long",
		 nt_duration(nt_pending_ack_ns(ack)).text);
	snprintf(out, size, delay, receiver, until);
}

#define QUICKACK \
	"set TCP_QUICKACK before each read, or `ip route change … quickack 1` towards the peer"

/* What waits for a late ACK, by the reason, and what to do about it at either end. */
static const struct waited {
	const char *why;
	const char *sender_fix;
	const char *receiver_fix;
} waited_for[NT_HOLD_REASONS] = {
	[NT_HOLD_NAGLE] = {"Nagle holds the small segment until what is in flight is acknowledged",
			   NULL, NULL},
	[NT_HOLD_MSG_MORE] = {"MSG_MORE of the last write holds it back until what is in flight is "
			      "acknowledged",
			      "write the last part without MSG_MORE; TCP_NODELAY does not help",
			      QUICKACK "; better at the sender: the last part without MSG_MORE"},
	[NT_HOLD_CWND] =
		{"the congestion window lets nothing more out until what is in flight is "
		 "acknowledged",
		 "raise initcwnd of the route, set net.ipv4.tcp_slow_start_after_idle to 0, "
		 "or write fewer and larger parts; TCP_NODELAY does not help",
		 QUICKACK "; better at the sender: a larger initcwnd"},
	[NT_HOLD_SNDBUF] = {"the send buffer is full until what is in flight is acknowledged",
			    "leave SO_SNDBUF to the kernel, or make it larger than a message; "
			    "TCP_NODELAY does not help",
			    QUICKACK "; better at the sender: no small SO_SNDBUF"},
	[NT_HOLD_LINGER] =
		{"close() lingers until its FIN is acknowledged",
		 "shutdown(SHUT_WR) and read to the end, instead of SO_LINGER; "
		 "TCP_NODELAY does not help",
		 "close() as soon as a read returns 0, or set TCP_QUICKACK; at the sender: no "
		 "SO_LINGER"},
	[NT_HOLD_HANDSHAKE] =
		{"the peer's accept() waits for the last ACK of the handshake", NULL,
		 "set neither TCP_DEFER_ACCEPT nor TCP_QUICKACK 0 before connect() where "
		 "the server speaks first"},
	[NT_HOLD_UNKNOWN] = {"the peer waited for this ACK, most often with a small segment that "
			     "Nagle holds, or it wrote just then, as a relay may",
			     NULL, NULL},
};

/* Returns what waited for a late ACK. What has no remedy of its own is Nagle's, or may be. */
static const struct waited *waited(const struct nt_stall *stall)
{
	unsigned int reason = stall->record.hold.reason;

	if (stall->record.cause != NT_CAUSE_DELAYED_ACK || reason >= NT_HOLD_REASONS ||
	    !waited_for[reason].why)
		reason = NT_HOLD_NAGLE;
	return &waited_for[reason];
}

static void describe_why(const struct nt_stall *stall, char *out, size_t size)
{
	const struct nt_process *receiver = &stall->receiver;
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16], delay[256];

	if (stall->record.cause == NT_CAUSE_CORK_CEILING) {
		snprintf(out, size,
			 "the kernel sends a corked segment only when it is full, uncorked, or "
			 "after the probe timer (one RTO, 200 ms and more)");
		return;
	}
	if (!stall->record.receiver.present) {
		snprintf(out, size, "%s; the peer delayed that ACK", waited(stall)->why);
		return;
	}
	nt_format_process(receiver, name, sizeof(name));
	describe_delay(stall, receiver->tgid ? name : "the receiver", delay, sizeof(delay));
	snprintf(out, size, "%s; %s", waited(stall)->why, delay);
}

#define KERNEL_USES "the kernel itself uses this socket: see the options of the mount or the module"

/* What leaves Nagle on, by the names of its sockets' users, and its option. */
static const struct client {
	const char *name, *option;
} nagle_clients[] = {
	{"kernel (cifsd)", "mount it with the option tcpnodelay, from Linux 5.11 on"},
	{"kernel (libceph)", "mount or map it without the option notcp_nodelay"},
};

/* Returns the remedy where the kernel itself uses the socket, and NULL where a program does. */
static const char *kernel_fix(const struct nt_stall *stall)
{
	const char *name = nt_stall_process(stall, stall->side)->comm;

	if (nt_stall_end(stall, stall->side)->user != NT_USER_KERNEL)
		return NULL;
	if (stall->record.cause == NT_CAUSE_CORK_CEILING)
		return KERNEL_USES;
	if (stall->side == NT_SIDE_RECEIVER)
		return "the kernel itself uses this socket: `ip route change … quickack 1` towards the "
		       "peer";
	for (size_t i = 0; i < sizeof(nagle_clients) / sizeof(nagle_clients[0]); i++)
		if (stall->record.cause == NT_CAUSE_NAGLE_DELAYED_ACK &&
		    !strcmp(name, nagle_clients[i].name))
			return nagle_clients[i].option;
	if (nt_record_reason(&stall->record) == NT_HOLD_CWND)
		return waited(stall)->sender_fix;
	return KERNEL_USES
		"; or `ip route change … quickack 1` on the peer's host, towards this one";
}

static const char *sender_fix(const struct nt_stall *stall, unsigned int pattern)
{
	if (waited(stall)->sender_fix)
		return waited(stall)->sender_fix;
	switch (pattern) {
	case NT_PATTERN_CORK_CEILING:
		return stall->record.hold.reason == NT_HOLD_MSG_MORE
			       ? "write the last part without MSG_MORE"
			       : "clear TCP_CORK after the last write of a message";
	case NT_PATTERN_HANDSHAKE_FLIGHT:
		return "set TCP_NODELAY right after connect() or accept(), before the first write";
	case NT_PATTERN_REPLY_TAIL:
		return "write the whole message at once (writev, a buffer, MSG_MORE on all parts but the "
		       "last), or set TCP_NODELAY";
	case NT_PATTERN_SEVERAL_WRITES:
		return "gather what is ready into one write (a buffer, writev, MSG_MORE on all but the "
		       "last), or set TCP_NODELAY";
	case NT_PATTERN_ONE_WAY:
		return "set TCP_NODELAY if each message has to arrive at once, or gather messages into "
		       "one write; if none has to, nothing is wrong";
	default:
		return "write both parts at once (writev, a buffer, MSG_MORE), or set TCP_NODELAY";
	}
}

static const char *receiver_fix(const struct nt_stall *stall, unsigned int pattern)
{
	if (waited(stall)->receiver_fix)
		return waited(stall)->receiver_fix;
	if (pattern == NT_PATTERN_LOCKED_SOCKET)
		return "keep the calls on this socket short; best is at the sender: write both parts at "
		       "once, or TCP_NODELAY there";
	if (pattern == NT_PATTERN_CORK_CEILING)
		return "the sender has to clear TCP_CORK, or write the last part without MSG_MORE";
	return QUICKACK "; better at the sender: one write, or TCP_NODELAY there";
}

void nt_advice_for(const struct nt_stall *stall, unsigned int pattern, struct nt_advice *advice)
{
	const char *fix;

	describe_pattern(stall, pattern, advice->pattern, sizeof(advice->pattern));
	describe_why(stall, advice->why, sizeof(advice->why));
	if (stall->record.evidence == NT_EVIDENCE_INFERRED)
		snprintf(advice->evidence, sizeof(advice->evidence), "inferred from this end");
	else if (stall->record.sender.present && stall->record.receiver.present)
		snprintf(advice->evidence, sizeof(advice->evidence), "seen at both ends");
	else
		snprintf(advice->evidence, sizeof(advice->evidence), "seen");
	fix = kernel_fix(stall);
	if (!fix)
		fix = stall->side == NT_SIDE_SENDER ? sender_fix(stall, pattern)
						    : receiver_fix(stall, pattern);
	snprintf(advice->fix, sizeof(advice->fix), "%s", fix);
}
