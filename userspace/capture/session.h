/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A tracing session: the attached programs, the processes that they watch, and the records that
 * come. All commands that trace have one, and start it by start.h.
 */
#pragma once

#include "attach/counts.h"
#include "capture/kept.h"
#include "capture/origin.h"
#include "capture/overhead.h"
#include "capture/owners.h"
#include "capture/processes.h"
#include "capture/stacks.h"
#include "capture/stall.h"
#include "capture/stall_queue.h"
#include "capture/standby.h"
#include "attach/tracer.h"
#include "capture/waiting.h"

struct nt_loop;
struct ring_buffer;

/* What a command does as its loop serves the session; each gets the context of on_stall. */
struct nt_session_watch {
	void (*on_turn)(void *context); /* after we took records; NULL: nothing */
	/* of a relay's stall that nobody asked for: nt_stall_behind(); NULL: nothing */
	void (*on_behind)(void *context, const struct nt_stall *stall);
	void (*on_all_ended)(
		void *context); /* the last process of --pid has ended; NULL: nothing */
};

struct nt_session {
	const struct nt_settings *settings;
	struct nt_targets targets;
	struct nt_tracer tracer;
	struct nt_owners owners;
	struct nt_origin origin;
	uint64_t reported;      /* stalls, holds and late ACKs so far */
	struct bpf_link *kept;  /* lists the remedies that are kept; NULL: nothing does */
	struct nt_audit *audit; /* NULL: the number of unseen timers is not known */
	struct nt_overhead overhead;
	struct nt_standby standby; /* with --standby: whether it is attached now */
	struct nt_stacks *stacks;  /* NULL without --stacks, as names is */
	struct nt_names *names;
	struct nt_stall_queue queue; /* stalls that wait for names */
	bool queues;
	int wake;         /* an epoll of records, names and the timer */
	int timer;        /* expires at the earliest of look_ns, queued_until_ns, rest_until_ns */
	uint64_t look_ns; /* when to look for owners; 0: no record waits for them */
	bool timer_is_set;
	uint64_t queued_until_ns; /* when a queued stall has waited enough; 0: none */
	uint64_t rest_until_ns;   /* when to look for records again; 0: the next one wakes us */
	uint64_t took_ns;         /* when there last were records */
	bool names_told, names_over_told; /* we reported that some are missing; that all will be */
	struct ring_buffer *records;
	struct nt_waiting waiting; /* records that wait for the owners of their sockets */
	bool hurry;                /* no record may wait any longer */
	bool unnamed;              /* no further stack is to be named */
	uint64_t unowned; /* ends of stalls without their process, for lack of room or time */
	void (*on_stall)(void *context, const struct nt_stall *stall);
	void *context;
	struct nt_loop *loop; /* which serves it; NULL: none yet */
	struct nt_session_watch watch;
	uint64_t pause_ns; /* when others have their turn */
	bool leaves_out;   /* we only count records, in left_out */
	uint64_t left_out;
	uint64_t contradicted;   /* records that turned out to be no stall */
	struct nt_counts counts; /* the last counts that we could read */
	bool counts_failed;      /* reading them failed, and we reported it */
	uint64_t dropped_told;   /* dropped records that we have reported */
	uint64_t dropped_stacks;
	uint64_t dropped_checked_ns;
};

/*
 * Loads and attaches the programs; the loop of nt_session_watch() then calls on_stall(context) for
 * each record that it finds. The caller closes the session even if this returns false.
 */
bool nt_session_open(struct nt_session *session, const struct nt_settings *settings,
		     void (*on_stall)(void *context, const struct nt_stall *stall), void *context,
		     struct nt_error *error);
void nt_session_close(struct nt_session *session);

/* Has the kernel side report each late ACK from now on, or no more. Where it cannot report all, the
 * origin says so. */
void nt_session_want_late_acks(struct nt_session *session, bool wanted);

/*
 * Has the loop serve the session from now on: take records, names, and the ends of the processes of
 * --pid. Returns 0 or -errno. The session is closed before the loop is freed.
 */
int nt_session_watch(struct nt_session *session, struct nt_loop *loop,
		     const struct nt_session_watch *watch);

/*
 * Drain takes all records, also those that wait, in a third of a second at most, and then
 * waits 50 ms for names. Flush reports the stalls that wait for names yet. Finish drains for the
 * last time, with 0.3 s for names; it reports all stalls, and counts those records as dropped for
 * which there was no time.
 */
void nt_session_drain(struct nt_session *session);
void nt_session_flush(struct nt_session *session);
void nt_session_finish(struct nt_session *session);

/*
 * Pause detaches all hooks; a drain takes the records so far. Resume attaches them again:
 * nt_tracer_resume() says what *failed is. Nothing is lost of counts. Both return 0 or -errno.
 */
int nt_session_pause(struct nt_session *session);
int nt_session_resume(struct nt_session *session, const char **failed);

/*
 * Returns one line to report about missing names, or NULL if there is no news; at most two lines in
 * a session's life.
 */
const char *nt_session_unnamed(struct nt_session *session);

/* Does what --max-overhead wants next: nt_overhead_turn(). */
enum nt_overhead_news nt_session_overhead(struct nt_session *session, uint64_t *again_ns);

/*
 * Reads the counts of the kernel side; if that fails, returns the last ones, and reports the
 * failure once.
 */
void nt_session_counts(struct nt_session *session, struct nt_counts *counts);

/*
 * Returns true, at most once a second, when records were dropped since it last did; it then sets
 * *counts.
 */
bool nt_session_dropped_more(struct nt_session *session, struct nt_counts *counts);
