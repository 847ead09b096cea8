// SPDX-License-Identifier: GPL-2.0
#include "capture/audit.h"

#include <stdlib.h>
#include <string.h>

#include "attach/tracer.h"
#include "base/clock.h"
#include "base/hash.h"
#include "capture/namespaces.h"

/* A reading stays valid for the longer of this time and this multiple of what it took. */
#define KEEP_AT_LEAST_NS 5000000ULL
#define KEEP_TIMES_COST  20

/*
 * The time for which we read namespaces at once. Of thousands we read some the next time; each has
 * the times of its own readings.
 */
#define READ_NS (200 * 1000000ULL)

/* The most attempts at a reading that timers disturb. */
#define MOST_READINGS 4

/* The readings whose unseen timers a namespace keeps; they may still excuse a stall. */
#define FINDS 32

/* The most namespaces that we keep, whoever makes them: 4 MB. */
#define MOST_NAMESPACES NT_NAMESPACES_COUNTED

/* Unseen timers that expired between two readings. */
struct find {
	uint64_t from_ns, to_ns;
	uint64_t left; /* how many of them have excused nothing yet */
};

struct space {
	uint64_t id;
	uint32_t inum;
	bool based;        /* base is known */
	bool late;         /* nobody could read it when the scan first listed it */
	uint64_t based_ns; /* base may have what expired before this; 0: it has not */
	bool there;        /* the scan that is under way listed it */
	bool lived_in;     /* and a process in it, by which we can read it */
	uint64_t file;     /* its counter's file; 0: we never read it */
	int64_t base; /* how many more the kernel had counted than our programs when they began */
	uint64_t unseen;
	uint64_t read_ns; /* when the last reading began */
	struct find finds[FINDS];
	size_t n_finds;
	UT_hash_handle hh;
};

struct nt_audit {
	struct nt_namespaces namespaces;
	uint32_t only; /* this namespace; 0: all */
	struct space *spaces;
	uint64_t gone;     /* unseen timers of namespaces that are gone */
	uint64_t scan_ns;  /* when the last scan began; 0: never */
	uint64_t ended_ns; /* when a namespace last took timers with it: see nt_audit_whole() */
	uint64_t valid_until_ns;
	bool complete; /* the last scan had all namespaces of the host, and we keep them all */
	bool left_out; /* we do not keep them all */
	bool known;    /* at least one namespace was compared */
	bool stopped;
};

static void drop(struct nt_audit *audit, struct space *space)
{
	HASH_DEL(audit->spaces, space);
	free(space);
}

/* Puts the namespace behind the others. Without memory for that it forgets it. */
static void keep(struct nt_audit *audit, struct space *space)
{
	HASH_ADD(hh, audit->spaces, id, sizeof(space->id), space);
	if (space->hh.tbl)
		return;
	audit->left_out = true;
	audit->gone += space->unseen;
	free(space);
}

static bool file_is_of_another(const struct nt_audit *audit, uint64_t file)
{
	/* one without a process may be gone, and its file another's */
	for (const struct space *s = audit->spaces; s; s = s->hh.next)
		if (s->file == file && s->there)
			return true;
	return false;
}

/*
 * Does this counter belong to the namespace? A process may have moved to another one since we
 * listed it.
 */
static bool file_is_its_own(const struct nt_audit *audit, struct space *space, uint64_t file)
{
	if (!space->file && !file_is_of_another(audit, file))
		space->file = file;
	return space->file == file;
}

static void note_find(struct space *space, uint64_t from_ns, uint64_t to_ns, uint64_t count)
{
	if (space->n_finds == FINDS) {
		memmove(space->finds, space->finds + 1, (FINDS - 1) * sizeof(*space->finds));
		space->n_finds--;
	}
	space->finds[space->n_finds++] =
		(struct find){.from_ns = from_ns, .to_ns = to_ns, .left = count};
}

/* A timer that expires during a reading hides one that went unseen. Then we read again. */
static bool read_timers(struct nt_audit *audit, const struct space *space, struct nt_timers *timers)
{
	struct nt_timers now;
	int i = 0;

	while (i < MOST_READINGS && nt_namespaces_read(&audit->namespaces, space->id, &now)) {
		*timers = now;
		i++;
		if (now.seen == now.seen_before)
			break;
	}
	return i > 0;
}

static bool read_space(struct nt_audit *audit, struct space *space)
{
	uint64_t began = nt_now_ns();
	struct nt_timers timers;
	int64_t more;

	if (!read_timers(audit, space, &timers) || !file_is_its_own(audit, space, timers.file))
		return false;
	audit->known = true;
	if (!space->based) {
		/* a timer that expires just now counts as one that expired before */
		space->base = timers.counted - timers.seen_before - space->unseen;
		space->based = true;
		space->based_ns = space->late ? began : 0;
	}
	more = (int64_t)(timers.counted - timers.seen) - space->base;
	if (more > (int64_t)space->unseen) {
		note_find(space, space->read_ns, nt_now_ns(), more - space->unseen);
		space->unseen = more;
	}
	space->read_ns = began;
	return true;
}

/*
 * Adds a namespace, if there is room. If the scan before was complete and did not list it, it is
 * new: its counter began at 0.
 */
static void add_space(struct nt_audit *audit, uint64_t id, uint32_t inum)
{
	struct space *space = NULL;

	if (HASH_COUNT(audit->spaces) < MOST_NAMESPACES)
		space = calloc(1, sizeof(*space));
	if (!space) {
		audit->left_out = true;
		return;
	}
	space->id = id;
	space->inum = inum;
	space->based = audit->complete;
	space->late = !space->based && audit->scan_ns;
	space->read_ns = audit->scan_ns;
	if (space->late)
		audit->ended_ns = nt_now_ns();
	keep(audit, space);
}

/* Marks the namespaces that the scan listed, or adds those that we do not keep yet. */
static void take_those_listed(struct nt_audit *audit, bool add)
{
	const struct nt_namespaces *ns = &audit->namespaces;

	for (size_t i = 0; i < ns->count; i++) {
		const struct nt_netns *listed = &ns->list[i];
		bool again = i && listed[-1].id == listed->id;
		struct space *space;

		/* one in which nobody lives stands first, and has no thread */
		if ((again && listed[-1].tid) || (audit->only && listed->inum != audit->only))
			continue;
		HASH_FIND(hh, audit->spaces, &listed->id, sizeof(listed->id), space);
		if (!space && add && !again) {
			add_space(audit, listed->id, listed->inum);
			HASH_FIND(hh, audit->spaces, &listed->id, sizeof(listed->id), space);
		}
		if (!space)
			continue;
		space->there = true;
		space->lived_in |= listed->tid != 0;
	}
}

/*
 * A namespace that a complete list does not have is gone; if an incomplete list does not have it,
 * no process lives in it.
 */
static void forget_those_gone(struct nt_audit *audit)
{
	bool all = audit->namespaces.complete || HASH_COUNT(audit->spaces) >= MOST_NAMESPACES;
	struct space *space, *next;

	HASH_ITER(hh, audit->spaces, space, next)
	{
		if (space->there || !all)
			continue;
		audit->gone += space->unseen;
		audit->ended_ns = nt_now_ns();
		nt_namespaces_forget(&audit->namespaces, space->id);
		drop(audit, space);
	}
}

/*
 * Forgets what was counted of namespaces that we do not keep: they may have come and gone between
 * two scans. If one comes back, it is compared from then on.
 */
static void forget_others(struct nt_audit *audit)
{
	for (size_t i = 0; i < audit->namespaces.n_counted; i++) {
		uint64_t id = audit->namespaces.counted[i];
		struct space *space;

		HASH_FIND(hh, audit->spaces, &id, sizeof(id), space);
		if (!space)
			nt_namespaces_forget(&audit->namespaces, id);
	}
}

/* Reads those first that we have not read for longest; the hash keeps them in that order. */
static void read_spaces(struct nt_audit *audit)
{
	uint64_t until_ns = nt_now_ns() + READ_NS;

	for (unsigned int n = HASH_COUNT(audit->spaces); n && nt_now_ns() < until_ns; n--) {
		struct space *space = audit->spaces;

		if (space->there)
			read_space(audit, space);
		HASH_DEL(audit->spaces, space);
		keep(audit, space);
	}
	for (struct space *s = audit->spaces; s; s = s->hh.next)
		s->late |= !s->based;
}

void nt_audit_read(struct nt_audit *audit, bool now)
{
	uint64_t began = nt_now_ns(), cost;

	if (!audit || audit->stopped || (!now && began < audit->valid_until_ns))
		return;
	for (struct space *s = audit->spaces; s; s = s->hh.next)
		s->there = s->lived_in = false;
	if (nt_namespaces_scan(&audit->namespaces))
		return;
	audit->left_out = audit->namespaces.full;
	take_those_listed(audit, false);
	forget_those_gone(audit);
	take_those_listed(audit, true);
	forget_others(audit);
	audit->scan_ns = began;
	read_spaces(audit);
	audit->complete = audit->namespaces.complete && !audit->left_out;
	cost = nt_now_ns() - began;
	audit->valid_until_ns = began + cost +
				(KEEP_TIMES_COST * cost > KEEP_AT_LEAST_NS ? KEEP_TIMES_COST * cost
									   : KEEP_AT_LEAST_NS);
}

void nt_audit_pause(struct nt_audit *audit)
{
	nt_audit_read(audit, true);
	nt_audit_stop(audit);
}

void nt_audit_resume(struct nt_audit *audit)
{
	if (!audit)
		return;
	for (struct space *s = audit->spaces; s; s = s->hh.next)
		s->based = false;
	audit->complete = false; /* a namespace that came meanwhile has counted already */
	audit->stopped = false;
	nt_audit_read(audit, true);
}

/*
 * Do our programs count the timers of all sockets, also of those that a filter leaves out? By
 * function hooks a timer may go unseen whose ACK is seen to leave, but not for these.
 */
static bool counts_all(const struct nt_tracer *tracer, const struct nt_settings *settings)
{
	return tracer->hooks.family == NT_HOOKS_TRACEPOINT || !nt_chooses_connections(settings);
}

struct nt_audit *nt_audit_new(const struct nt_tracer *tracer, const struct nt_settings *settings)
{
	struct nt_audit *audit;

	if (!counts_all(tracer, settings))
		return NULL;
	audit = calloc(1, sizeof(*audit));
	if (audit && nt_namespaces_open(&audit->namespaces, tracer)) {
		free(audit);
		return NULL;
	}
	if (audit)
		audit->only = settings->netns;
	nt_audit_read(audit, true);
	return audit;
}

void nt_audit_free(struct nt_audit *audit)
{
	if (!audit)
		return;
	while (audit->spaces)
		drop(audit, audit->spaces);
	nt_namespaces_close(&audit->namespaces);
	free(audit);
}

void nt_audit_stop(struct nt_audit *audit)
{
	if (audit)
		audit->stopped = true;
}

bool nt_audit_unseen(const struct nt_audit *audit, uint64_t *unseen)
{
	if (!audit || !audit->known || audit->left_out ||
	    nt_namespaces_overflowed(&audit->namespaces))
		return false;
	*unseen = audit->gone;
	for (const struct space *s = audit->spaces; s; s = s->hh.next)
		*unseen += s->unseen;
	return true;
}

bool nt_audit_whole(const struct nt_audit *audit, uint64_t from_ns, uint64_t read_ns)
{
	if (!audit || audit->scan_ns < read_ns || audit->ended_ns >= from_ns)
		return false;
	for (const struct space *s = audit->spaces; s; s = s->hh.next)
		if (s->lived_in && s->read_ns < read_ns)
			return false;
	return true;
}

static struct space *find_space(const struct nt_audit *audit, uint32_t inum)
{
	struct space *found = NULL;

	/* a namespace that was there lately may have had the same number */
	for (struct space *s = audit->spaces; s; s = s->hh.next)
		if (s->inum == inum && s->there && (!found || s->read_ns > found->read_ns))
			found = s;
	return found;
}

/* Returns the namespace, read after end_ns if possible. */
static struct space *space_after(struct nt_audit *audit, uint32_t inum, uint64_t end_ns)
{
	struct space *space = find_space(audit, inum);

	if (audit->stopped || (space && space->read_ns > end_ns))
		return space;
	if (space && read_space(audit, space))
		return space;
	/* nobody lives there by whom to read it: each such stall would cost a scan */
	if (space && !space->lived_in && nt_now_ns() < audit->valid_until_ns)
		return space;
	nt_audit_read(audit, true);
	space = find_space(audit, inum);
	if (space && space->read_ns <= end_ns) /* there was no time to read it */
		read_space(audit, space);
	return space;
}

/* Takes a timer back that we took for one from before the trace: nobody could read the counter. */
static bool take_from_base(struct space *space)
{
	if (space->base <= 0)
		return false;
	space->base--;
	space->unseen++;
	return true;
}

bool nt_audit_excuses(struct nt_audit *audit, uint32_t netns, uint64_t begin_ns, uint64_t end_ns)
{
	struct space *space;

	if (!audit || nt_namespaces_overflowed(&audit->namespaces))
		return true;
	if (audit->left_out && !find_space(audit, netns))
		return true; /* each such stall would cost a scan */
	space = space_after(audit, netns, end_ns);
	if (!space || !space->file || space->read_ns <= end_ns)
		return true;
	for (size_t i = 0; i < space->n_finds; i++) {
		struct find *find = &space->finds[i];

		if (!find->left || find->to_ns < begin_ns || find->from_ns > end_ns)
			continue;
		find->left--;
		return true;
	}
	return begin_ns < space->based_ns && take_from_base(space);
}
