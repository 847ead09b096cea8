// SPDX-License-Identifier: GPL-2.0
#include "session.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "clock.h"
#include "nagletrace.skel.h"

/* Records are taken for so long at once, then others have their turn; at the end, for so long in
 * all. */
#define SLICE_NS (20 * 1000000ULL)
#define DRAIN_NS (2 * NT_SECOND_NS)

void nt_complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("nagletrace: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

static int on_record(void *context, void *data, size_t size)
{
	struct nt_session *session = context;
	const struct nt_record *record = data;
	struct nt_stall stall;

	if (size < sizeof(*record) || record->size != sizeof(*record))
		return 0;
	if (!nt_stall_from_record(&stall, record, session->opts, &session->targets,
				  &session->owners))
		return 0;
	/* a stack is named while its process is there, for the report that comes after its end too
	 */
	stall.record.hold.stack_id =
		session->stacks ? nt_stacks_name(session->stacks, record) : NT_NO_STACK;
	session->on_stall(session->context, &stall);
	/* libbpf stops here, and goes on with the next record when it is asked again */
	return nt_now_ns() > session->pause_ns ? -EINTR : 0;
}

static int on_event(void *context, void *data, size_t size)
{
	struct nt_session *session = context;
	const struct nt_event *event = data;

	if (size < sizeof(*event) || event->size != sizeof(*event))
		return 0;
	nt_timeline_add(session->timeline, event);
	session->event_ns = event->time_ns;
	return nt_now_ns() > session->events_pause_ns ? -EINTR : 0;
}

/* The kernel side counts for processes asked for by the sockets it knows them to hold. */
static void mark_open_sockets(struct nt_session *session)
{
	const struct nagletrace_bpf *skel = session->tracer.skel;
	int owned = bpf_map__fd(skel->maps.owned), watched = bpf_map__fd(skel->maps.watched);

	if (!nt_targets_any(&session->targets) || nt_owners_scan(&session->owners))
		return;
	for (size_t i = 0; i < session->owners.count; i++) {
		const struct nt_owner *owner = &session->owners.list[i];

		if (!nt_targets_match(&session->targets, owner->tgid))
			continue;
		bpf_map_update_elem(owned, &owner->sk, &owner->tgid, BPF_ANY);
		if (session->opts->timeline) {
			__u64 key = nt_connection_key(&owner->tuple);
			__u8 one = 1;

			bpf_map_update_elem(watched, &key, &one, BPF_ANY);
		}
	}
}

static int fill_ports(const struct nt_session *session)
{
	const struct nt_options *opts = session->opts;
	const struct nt_port_list *lists[] = {&opts->ports, &opts->local_ports,
					      &opts->remote_ports};
	int map = bpf_map__fd(session->tracer.skel->maps.ports);
	__u8 one = 1;

	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (unsigned int i = 0; i < lists[l]->count; i++)
			if (bpf_map_update_elem(map, &lists[l]->port[i], &one, BPF_ANY))
				return -errno;
	return 0;
}

/* Everything between attached and ready. */
static int prepare(struct nt_session *session)
{
	int err;

	nt_owners_open(&session->owners, &session->tracer);
	err = fill_ports(session);
	if (!err)
		err = nt_targets_start(&session->targets, &session->tracer);
	if (err)
		return err;
	mark_open_sockets(session);
	if (session->opts->stacks) {
		session->stacks = nt_stacks_new(&session->tracer, session->opts->max_connections);
		if (!session->stacks)
			return -ENOMEM;
	}
	if (session->opts->timeline) {
		session->timeline = nt_timeline_new(session->opts, &session->owners, stdout);
		session->events = ring_buffer__new(bpf_map__fd(session->tracer.skel->maps.events),
						   on_event, session, NULL);
		if (!session->timeline || !session->events)
			return session->timeline ? -errno : -ENOMEM;
	}
	session->records = ring_buffer__new(bpf_map__fd(session->tracer.skel->maps.records),
					    on_record, session, NULL);
	return session->records ? 0 : -errno;
}

enum nt_exit nt_session_open(struct nt_session *session, const struct nt_options *opts,
			     void (*on_stall)(void *context, const struct nt_stall *stall),
			     void *context, char *err, size_t err_size)
{
	enum nt_exit code;
	int cause;

	memset(session, 0, sizeof(*session));
	session->opts = opts;
	session->on_stall = on_stall;
	session->context = context;
	code = nt_targets_open(&session->targets, opts, err, err_size);
	if (!code)
		code = nt_tracer_open(&session->tracer, opts, err, err_size);
	if (code)
		return code;
	code = nt_overhead_open(&session->overhead, opts->max_overhead_ppm, err, err_size);
	if (code)
		return code;
	cause = prepare(session);
	if (cause) {
		snprintf(err, err_size, "cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	/* what loading took is given back: the BTF of the kernel, for the most part */
	malloc_trim(0);
	return NT_EXIT_OK;
}

void nt_session_close(struct nt_session *session)
{
	ring_buffer__free(session->records);
	ring_buffer__free(session->events);
	nt_timeline_free(session->timeline);
	nt_overhead_close(&session->overhead);
	nt_stacks_free(session->stacks);
	nt_owners_close(&session->owners);
	nt_tracer_close(&session->tracer);
	if (session->targets.opts)
		nt_targets_close(&session->targets);
	memset(session, 0, sizeof(*session));
}

int nt_session_fd(const struct nt_session *session)
{
	return ring_buffer__epoll_fd(session->records);
}

bool nt_session_consume(struct nt_session *session)
{
	session->pause_ns = nt_now_ns() + SLICE_NS;
	return ring_buffer__consume(session->records) == -EINTR;
}

void nt_session_drain(struct nt_session *session)
{
	uint64_t give_up = nt_now_ns() + DRAIN_NS;

	while (nt_session_consume(session) && nt_now_ns() < give_up)
		;
}

bool nt_session_consume_events(struct nt_session *session, uint64_t *until_ns)
{
	bool all = *until_ns == UINT64_MAX, more;
	uint64_t give_up = nt_now_ns() + (all ? DRAIN_NS : 0);

	do {
		session->events_pause_ns = nt_now_ns() + SLICE_NS;
		more = ring_buffer__consume(session->events) == -EINTR;
	} while (more && nt_now_ns() < give_up);
	if (more && all)
		nt_complain("timeline: events came faster than they were written; the last ones "
			    "are left out");
	else if (more && *until_ns > session->event_ns)
		*until_ns = session->event_ns;
	return nt_timeline_waits(session->timeline, *until_ns) ||
	       (all && nt_tracer_events_lost(&session->tracer));
}

int nt_session_write_timeline(struct nt_session *session, uint64_t until_ns)
{
	return nt_timeline_write(session->timeline, until_ns,
				 nt_tracer_events_lost(&session->tracer));
}

void nt_session_counts(struct nt_session *session, struct nt_counts *counts)
{
	int err = nt_tracer_counts(&session->tracer, counts);

	if (!err) {
		session->counts = *counts;
		session->counts_failed = false;
		return;
	}
	*counts = session->counts;
	if (!session->counts_failed)
		nt_complain("cannot read the totals: %s; those of before are shown",
			    strerror(-err));
	session->counts_failed = true;
}

bool nt_session_lost_more(struct nt_session *session, struct nt_counts *counts)
{
	uint64_t now = nt_now_ns(), lost, stacks;

	if (now < session->lost_checked_ns + NT_SECOND_NS)
		return false;
	session->lost_checked_ns = now;
	nt_session_counts(session, counts);
	stacks = counts->totals.lost[NT_LOST_STACK];
	if (session->stacks && stacks != session->lost_stacks)
		nt_stacks_recycle(session->stacks, true);
	session->lost_stacks = stacks;
	lost = nt_counts_lost(counts);
	if (lost == session->lost_told)
		return false;
	session->lost_told = lost;
	return true;
}

void nt_session_print_hooks(const struct nt_session *session)
{
	const struct nt_tracer *tracer = &session->tracer;

	nt_complain("%s hooks%s%s%s", nt_family_name(tracer->family), tracer->why[0] ? " (" : "",
		    tracer->why, tracer->why[0] ? ")" : "");
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->missing[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			nt_complain("%s %s is missing; lost with it: %s",
				    nt_attach_name(nt_hooks[i].how), nt_hooks[i].target,
				    nt_hooks[i].part);
}
