// SPDX-License-Identifier: GPL-2.0
#include "capture/session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "base/clock.h"
#include "base/each_process.h"
#include "base/loop.h"
#include "base/log.h"
#include "nagletrace.skel.h"

/*
 * Before a report, and at the end, we take records for DRAIN_NS in all, and look for owners for
 * DRAIN_LOOK_NS, so that a signal takes effect within a second.
 */
#define DRAIN_NS      (NT_SECOND_NS / 3)
#define DRAIN_LOOK_NS (NT_SECOND_NS / 5)

/*
 * Once several records come within this time, we look for them at this interval, until a look finds
 * none: to be woken takes as long as to report a stall.
 */
#define REST_NS (NT_SECOND_NS / 500)

/* A time that is long past: the timer expires as soon as it is set. */
#define AT_ONCE 1

/* How long we wait for names before a report, and at the end. */
#define NAMES_MS      50
#define LAST_NAMES_MS 300

/* Counts an end that a process had open which we do not find: there was no room, or it is gone. */
static void count_unowned(struct nt_session *session, const struct nt_end *end,
			  const struct nt_process *process)
{
	if (end->present && end->user == NT_USER_PROCESS && !process->tgid &&
	    session->owners.iterator)
		session->unowned++;
}

/* Passes on a stall; numbers it, so that a reader notices the loss of one. */
static void report(struct nt_session *session, struct nt_stall *stall)
{
	stall->number = ++session->reported;
	session->on_stall(session->context, stall);
}

/* Replaces the numbers of the ACK by their hash: nobody behind this gets them. */
static void name_ack(struct nt_session *session, struct nt_stall *stall)
{
	struct nt_ack_numbers *numbers = &stall->record.numbers;

	stall->origin = &session->origin;
	if (numbers->ack || numbers->seq)
		stall->ack_id = nt_origin_ack_id(&session->origin, numbers, stall->record.time_ns);
	memset(numbers, 0, sizeof(*numbers));
}

/* Decides whether a record is a stall, with the owners that we know, and passes it on. */
static void judge(struct nt_session *session, const struct nt_record *record)
{
	struct nt_stall stall;
	bool wanted;

	session->owners.as_it_is = true;
	wanted = nt_stall_from_record(&stall, record, session->settings, &session->targets,
				      &session->owners, session->audit);
	if (!wanted && session->watch.on_behind &&
	    nt_stall_behind(&stall, record, session->settings, &session->targets, &session->owners))
		session->watch.on_behind(session->context, &stall);
	session->owners.as_it_is = false;
	if (!wanted)
		return;
	count_unowned(session, &record->sender, &stall.sender);
	count_unowned(session, &record->receiver, &stall.receiver);
	session->contradicted += stall.contradicted;
	if (stall.contradicted && !session->settings->all_holds)
		return;
	name_ack(session, &stall);
	/* name the stack while its process exists, since a report may come after its end */
	stall.record.hold.stack_id = session->stacks && !session->unnamed
					     ? nt_stacks_name(session->stacks, record)
					     : NT_NO_STACK;
	if (!session->queues || !nt_stall_queue_add(&session->queue, &stall))
		report(session, &stall);
}

/* Must this record wait for a look at all descriptors? */
static bool must_wait(const struct nt_session *session, const struct nt_record *record)
{
	return !session->hurry && nt_stall_must_look(record, &session->targets, &session->owners);
}

static int on_record(void *context, void *data, size_t size)
{
	struct nt_session *session = context;
	const struct nt_record *record = data;

	if (size < sizeof(*record) || record->size != sizeof(*record))
		return 0;
	if (session->leaves_out) {
		session->left_out++;
		return nt_now_ns() > session->pause_ns ? -EINTR : 0;
	}
	/* we judge a record that finds no room to wait by what we know */
	if ((!session->waiting.count && !must_wait(session, record)) ||
	    !nt_waiting_add(&session->waiting, record))
		judge(session, record);
	/* libbpf stops here, and goes on with the next record when it is asked again */
	return nt_now_ns() > session->pause_ns ? -EINTR : 0;
}

/* Judges the waiting records that need not wait any longer. */
static void judge_waiting(struct nt_session *session)
{
	const struct nt_record *first;

	while ((first = nt_waiting_first(&session->waiting)) && !must_wait(session, first) &&
	       nt_now_ns() < session->pause_ns) {
		struct nt_record record = *first;

		nt_waiting_drop(&session->waiting);
		judge(session, &record);
	}
}

/* Sets the timer to the time for owners, names or records; clears it if nothing waits for any. */
static void set_timer(struct nt_session *session)
{
	const uint64_t others[] = {session->queued_until_ns, session->rest_until_ns};
	uint64_t at_ns = session->look_ns;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i] && (!at_ns || others[i] < at_ns))
			at_ns = others[i];
	if (!at_ns && !session->timer_is_set)
		return;
	if (!nt_timer_set(session->timer, at_ns ? at_ns : NT_NEVER, 0))
		session->timer_is_set = at_ns;
}

/* Looks for the owners of the waiting records, unless the looks rest. */
static void serve_waiting(struct nt_session *session)
{
	struct nt_owners *owners = &session->owners;

	judge_waiting(session);
	session->look_ns = 0;
	if (!session->waiting.count)
		return;
	if (!owners->reader.under_way && nt_now_ns() < owners->rest_until_ns) {
		session->look_ns = owners->rest_until_ns;
		return;
	}
	/* judge at once: the result may soon be old */
	if (!nt_owners_go_on(owners, session->pause_ns))
		judge_waiting(session);
	session->look_ns = session->waiting.count ? AT_ONCE : 0;
}

/*
 * Marks the sockets that the processes the user asked for have open already: when the kernel side
 * counts, it recognises these processes by their sockets.
 */
static void mark_open_sockets(struct nt_session *session)
{
	const struct nagletrace_bpf *skel = session->tracer.skel;
	int owned = bpf_map__fd(skel->maps.owned), watched = bpf_map__fd(skel->maps.watched);
	const struct nt_owner_list *list = &session->owners.list;
	struct nt_asked asked = {};

	if (!nt_targets_any(&session->targets) || nt_owners_scan(&session->owners))
		return;
	for (size_t i = 0; i < list->count; i++) {
		const struct nt_owner *owner = &list->owners[i];

		if (owner->passing || !owner->tuple.remote_port ||
		    !nt_targets_match_once(&session->targets, owner->tgid, &asked))
			continue;
		skel->bss->owned_marks[htons(owner->tuple.remote_port) % NT_OWNED_MARKS] = true;
		bpf_map_update_elem(owned, &owner->sk, &owner->tgid, BPF_ANY);
		if (session->settings->timeline) {
			__u64 key = nt_connection_key(&owner->tuple);
			__u8 one = 1;

			bpf_map_update_elem(watched, &key, &one, BPF_ANY);
		}
	}
	nt_asked_clear(&asked);
}

static int fill_ports(const struct nt_session *session)
{
	const struct nt_settings *settings = session->settings;
	const struct nt_port_list *lists[] = {&settings->ports, &settings->local_ports,
					      &settings->remote_ports};
	int map = bpf_map__fd(session->tracer.skel->maps.ports);
	__u8 one = 1;

	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (unsigned int i = 0; i < lists[l]->count; i++)
			if (bpf_map_update_elem(map, &lists[l]->port[i], &one, BPF_ANY))
				return -errno;
	return 0;
}

/* Reports the stalls that need not wait for names any more, or all. */
static void report_queued(struct nt_session *session, bool all)
{
	struct nt_stall *stall;

	while ((stall = nt_stall_queue_take(&session->queue, session->stacks, all))) {
		report(session, stall);
		free(stall);
	}
}

static void take_names(struct nt_session *session)
{
	uint64_t until_ns;

	if (!session->names)
		return;
	if (session->stacks)
		nt_stacks_turn(session->stacks);
	report_queued(session, false);
	until_ns = nt_stall_queue_until_ns(&session->queue);
	if (nt_names_wait(session->names) && until_ns > nt_now_ns() + NT_SECOND_NS)
		until_ns = nt_now_ns() + NT_SECOND_NS; /* wake up to give up names that are late */
	session->queued_until_ns = until_ns == UINT64_MAX ? 0 : until_ns;
}

static int wake_for(const struct nt_session *session, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(session->wake, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int open_records(struct nt_session *session)
{
	int err;

	session->records = ring_buffer__new(bpf_map__fd(session->tracer.skel->maps.records),
					    on_record, session, NULL);
	if (!session->records)
		return -errno;
	session->wake = epoll_create1(EPOLL_CLOEXEC);
	session->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (session->wake < 0 || session->timer < 0)
		return -errno;
	err = wake_for(session, bpf_map__fd(session->tracer.skel->maps.records));
	if (!err)
		err = wake_for(session, session->timer);
	if (!err && session->names)
		err = wake_for(session, nt_names_fd(session->names));
	return err;
}

/* Does everything between attached and ready. */
static int prepare(struct nt_session *session)
{
	int err;

	nt_owners_open(&session->owners, &session->tracer, &session->targets);
	session->owners.interruptible = true;
	err = nt_origin_read(&session->origin, session->settings);
	if (!err)
		err = fill_ports(session);
	if (!err)
		err = nt_targets_start(&session->targets, &session->tracer);
	if (err)
		return err;
	mark_open_sockets(session);
	session->audit = nt_audit_new(&session->tracer, session->settings);
	session->kept = nt_kept_open(&session->tracer);
	if (session->settings->stacks) {
		session->stacks = nt_stacks_new(&session->tracer, session->names,
						session->settings->max_connections);
		if (!session->stacks)
			return -ENOMEM;
	}
	nt_session_want_late_acks(session, session->settings->late_acks);
	return open_records(session);
}

/*
 * Starts the keeper, before this process has anything that another should not inherit: descriptors,
 * BTF in memory.
 */
static int start_naming(struct nt_session *session)
{
	int err = 0;

	session->queues = session->settings->streams_stacks;
	if (session->settings->stacks)
		session->names = nt_names_open((void *)session->settings->fleet_keys,
					       sizeof(session->settings->fleet_keys), &err);
	return err;
}

/* The kernel side knows processes by their ids as the host counts them. */
static bool check_pids(const struct nt_settings *settings, struct nt_error *error)
{
	if (nt_process_ids_are_the_hosts())
		return true;
	nt_process_read_none();
	if (!nt_chooses_processes(settings) && !settings->stacks)
		return true;
	return nt_error_set(
		error, NT_EXIT_USAGE,
		"%s: this container has process ids of its own, by which the kernel does "
		"not know them; start it with --pid=host (Kubernetes: hostPID)",
		settings->workload ? "--"
		: settings->n_pids ? "--pid"
		: settings->stacks ? "--stacks"
		: settings->cgroup ? nt_cgroup_option(settings)
				   : "--name");
}

bool nt_session_open(struct nt_session *session, const struct nt_settings *settings,
		     void (*on_stall)(void *context, const struct nt_stall *stall), void *context,
		     struct nt_error *error)
{
	int err;

	memset(session, 0, sizeof(*session));
	session->wake = session->timer = -1;
	session->settings = settings;
	session->on_stall = on_stall;
	session->context = context;
	err = start_naming(session);
	if (err)
		return nt_error_set(error, NT_EXIT_FAILED,
				    "--stacks: cannot start the process that names frames: %s",
				    strerror(-err));
	if (!check_pids(settings, error) || !nt_targets_open(&session->targets, settings, error) ||
	    !nt_tracer_open(&session->tracer, settings, error) ||
	    !nt_overhead_open(&session->overhead, settings->max_overhead_ppm, error) ||
	    !nt_started(prepare(session), error))
		return false;
	/* give back the memory that loading took: mostly the kernel's BTF */
	malloc_trim(0);
	return true;
}

void nt_session_close(struct nt_session *session)
{
	ring_buffer__free(session->records);
	if (session->settings && session->wake >= 0)
		close(session->wake);
	if (session->settings && session->timer >= 0)
		close(session->timer);
	nt_waiting_clear(&session->waiting);
	nt_overhead_close(&session->overhead);
	nt_stall_queue_clear(&session->queue);
	nt_stacks_free(session->stacks);
	nt_names_close(session->names);
	nt_audit_free(session->audit);
	bpf_link__destroy(session->kept);
	nt_owners_close(&session->owners);
	nt_tracer_close(&session->tracer);
	if (session->targets.settings)
		nt_targets_close(&session->targets);
	memset(session, 0, sizeof(*session));
}

void nt_session_want_late_acks(struct nt_session *session, bool wanted)
{
	struct nt_origin *origin = &session->origin;
	int err = 0;

	if (session->standby.state != NT_STANDBY_WAITING)
		err = nt_tracer_see_reads(&session->tracer, wanted || session->settings->timeline);
	if (err && origin->all_late_acks) {
		nt_log("without the hook tcp_rcv_space_adjust (%s) streams lack late ACKs that a "
		       "read sent, and say so",
		       strerror(-err));
		origin->all_late_acks = origin->all_holds = false;
	}
	session->tracer.skel->bss->late_acks_wanted = wanted;
}

/* Decides, after n records were taken, whether the next one is to wake us. */
static void rest(struct nt_session *session, int n)
{
	struct epoll_event event = {.events = EPOLLIN};
	uint64_t now_ns = nt_now_ns();
	bool follows = session->rest_until_ns || now_ns < session->took_ns + REST_NS;
	bool rests = n > (follows ? 0 : 1);

	if (n > 0)
		session->took_ns = now_ns;
	if (rests != (session->rest_until_ns != 0)) {
		event.events = rests ? 0 : EPOLLIN;
		epoll_ctl(session->wake, EPOLL_CTL_MOD,
			  bpf_map__fd(session->tracer.skel->maps.records), &event);
	}
	session->rest_until_ns = rests ? now_ns + REST_NS : 0;
}

/* Takes records for NT_SLICE_NS at most, and looks for owners for as long; true: there may be more.
 */
static bool consume(struct nt_session *session)
{
	int n;

	session->pause_ns = nt_now_ns() + NT_SLICE_NS;
	serve_waiting(session);
	session->pause_ns = nt_now_ns() + NT_SLICE_NS;
	n = ring_buffer__consume(session->records);
	rest(session, n);
	if (session->waiting.count && !session->look_ns)
		session->look_ns = AT_ONCE;
	take_names(session);
	set_timer(session);
	return n == -EINTR || session->look_ns == AT_ONCE;
}

static void end_turn(struct nt_session *session)
{
	if (session->watch.on_turn)
		session->watch.on_turn(session->context);
}

static void on_wake(void *context, uint32_t what)
{
	consume(context);
	end_turn(context);
}

/* We take the records of its lifetime: from now on its number may be another process's. */
static void pid_ended(struct nt_session *session, unsigned int i)
{
	nt_loop_forget(session->loop, session->targets.pidfds[i]);
	nt_session_drain(session);
	if (nt_targets_mark_ended(&session->targets, i) && session->watch.on_all_ended)
		session->watch.on_all_ended(session->context);
}

/* One of the pidfds is readable: we look which, and those that are readable too. */
static void on_pids(void *context, uint32_t what)
{
	struct nt_session *session = context;
	int i;

	while ((i = nt_targets_find_ended(&session->targets)) >= 0)
		pid_ended(session, i);
}

int nt_session_watch(struct nt_session *session, struct nt_loop *loop,
		     const struct nt_session_watch *watch)
{
	int err = nt_loop_watch(loop, session->wake, EPOLLIN, on_wake, session);

	session->loop = loop;
	session->watch = *watch;
	session->owners.looks_behind = watch->on_behind && nt_targets_any(&session->targets);
	for (unsigned int i = 0; !err && i < session->settings->n_pids; i++)
		err = nt_loop_watch(loop, session->targets.pidfds[i], EPOLLIN, on_pids, session);
	return err;
}

/* Takes all records, then the names that come within names_ms. */
static void drain(struct nt_session *session, int names_ms)
{
	uint64_t began = nt_now_ns(), enough;

	session->owners.rest_until_ns = 0;
	while ((consume(session) || session->waiting.count) && nt_now_ns() < began + DRAIN_NS)
		session->hurry = nt_now_ns() > began + DRAIN_LOOK_NS;
	session->hurry = false;
	enough = nt_now_ns() + names_ms * 1000000ULL;
	while (session->names && nt_names_wait(session->names)) {
		struct pollfd names = {.fd = nt_names_fd(session->names), .events = POLLIN};
		uint64_t now = nt_now_ns();

		if (now >= enough || poll(&names, 1, (int)((enough - now) / 1000000) + 1) <= 0)
			break;
		take_names(session);
	}
	end_turn(session);
}

void nt_session_drain(struct nt_session *session)
{
	drain(session, NAMES_MS);
}

void nt_session_flush(struct nt_session *session)
{
	report_queued(session, true);
}

void nt_session_finish(struct nt_session *session)
{
	drain(session, LAST_NAMES_MS);
	/* the report says what was not traced, of sockets made since the start too */
	if (nt_targets_any(&session->targets))
		nt_owners_go_on(&session->owners, nt_now_ns() + DRAIN_LOOK_NS);
	/* a user who ends the trace does not wait for records that outrun our output */
	session->leaves_out = true;
	session->left_out += session->waiting.count;
	nt_waiting_clear(&session->waiting);
	session->pause_ns = nt_now_ns() + NT_SLICE_NS;
	ring_buffer__consume(session->records);
	session->dropped_checked_ns = 0; /* who asks now hears of those left out, too */
	report_queued(session, true);
}

int nt_session_pause(struct nt_session *session)
{
	nt_audit_pause(session->audit);
	return nt_tracer_pause(&session->tracer);
}

int nt_session_resume(struct nt_session *session, const char **failed)
{
	int err = nt_tracer_resume(&session->tracer, failed);

	if (err)
		return err;
	mark_open_sockets(session);
	nt_audit_resume(session->audit);
	return 0;
}

enum nt_overhead_news nt_session_overhead(struct nt_session *session, uint64_t *again_ns)
{
	enum nt_overhead_news news =
		nt_overhead_turn(&session->overhead, &session->tracer, again_ns);

	if (news == NT_OVERHEAD_ENDED) /* what expires from now on is no timer that went unseen */
		nt_audit_stop(session->audit);
	return news;
}

static void count_unnamed(const struct nt_session *session, struct nt_counts *counts)
{
	counts->names = session->names;
	for (size_t i = 0; session->names && i < NT_UNNAMED_REASONS; i++)
		counts->unnamed[i] = nt_names_missing(session->names)[i];
}

void nt_session_counts(struct nt_session *session, struct nt_counts *counts)
{
	int err = nt_tracer_counts(&session->tracer, counts);
	uint64_t unseen = 0;

	count_unnamed(session, counts);
	counts->totals.dropped[NT_DROPPED_RING_FULL] += session->left_out;
	if (session->stacks)
		counts->totals.dropped[NT_DROPPED_STACK] += nt_stacks_dropped(session->stacks);

	counts->contradicted = session->contradicted;
	memcpy(counts->untraced, session->owners.untraced, sizeof(counts->untraced));
	counts->unowned = session->unowned;
	counts->attached_ns =
		nt_standby_spent_ns(&session->standby, NT_STANDBY_ATTACHED, nt_now_ns());
	counts->sampled_excess_ns = session->standby.sampled_excess_ns;
	counts->audited = nt_audit_unseen(session->audit, &unseen);
	counts->unseen = unseen;
	if (!err) {
		session->counts = *counts;
		session->counts_failed = false;
		return;
	}
	*counts = session->counts;
	if (!session->counts_failed)
		nt_log("cannot read the totals: %s; shows the previous ones", strerror(-err));
	session->counts_failed = true;
}

bool nt_session_dropped_more(struct nt_session *session, struct nt_counts *counts)
{
	uint64_t now = nt_now_ns(), dropped, stacks;

	if (now < session->dropped_checked_ns + NT_SECOND_NS)
		return false;
	session->dropped_checked_ns = now;
	nt_owners_shrink(&session->owners);
	nt_session_counts(session, counts);
	stacks = counts->totals.dropped[NT_DROPPED_STACK];
	if (session->stacks)
		stacks -= nt_stacks_dropped(session->stacks); /* more room would not keep these */
	if (session->stacks && stacks != session->dropped_stacks)
		nt_stacks_recycle(session->stacks, true);
	session->dropped_stacks = stacks;
	dropped = nt_counts_dropped(counts);
	if (dropped == session->dropped_told)
		return false;
	session->dropped_told = dropped;
	return true;
}

const char *nt_session_unnamed(struct nt_session *session)
{
	const uint64_t *missing = session->names ? nt_names_missing(session->names) : NULL;

	if (!missing)
		return NULL;
	if (nt_names_fd(session->names) < 0 && !session->names_over_told) {
		session->names_over_told = session->names_told = true;
		return "--stacks: the process that names frames has ended; from now on stacks are "
		       "addresses only, and all else is reported as before";
	}
	/* the end of a process is no trouble of ours */
	if (session->names_told || !(missing[NT_UNNAMED_DIED] + missing[NT_UNNAMED_DEADLINE] +
				     missing[NT_UNNAMED_LIMIT] + missing[NT_UNNAMED_BUSY]))
		return NULL;
	session->names_told = true;
	return "--stacks: some stacks have no names, since naming them failed or took too much; "
	       "the reports count them (unnamed_stacks)";
}
