// SPDX-License-Identifier: GPL-2.0
#include "names/names.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "names/keeper.h"

/*
 * The requests that we keep, each of 5 KB; if more stacks come at once, those of the owner with the
 * most requests stay without names.
 */
#define N_REQUESTS 32

/* We wait no longer for a keeper that misses its own deadline. */
#define REQUEST_NS (NT_KEEPER_DEADLINE_NS + NT_SECOND_NS)

/*
 * The share of one CPU that naming may take in the long run, as 1/N: in all, and
 * for one owner. Then how much it may take at once, after a while without any.
 */
#define SHARE_ALL     10
#define SHARE_OWNER   20
#define AT_ONCE_ALL   (5 * NT_SECOND_NS)
#define AT_ONCE_OWNER (2 * NT_SECOND_NS)

/* The least cost of a worker that ended badly, since starting the next one takes time too. */
#define FAILURE_NS (NT_SECOND_NS / 4)

/* The owners whose use we remember; the one that used least makes room. */
#define N_OWNERS 64

enum {
	FREE,
	WAITS,
	ASKED
};

struct request {
	int state;
	uint64_t since_ns;
	struct nt_names_request what;
};

/* The time that an owner used, minus the time granted since. */
struct use {
	uint64_t owner, used_ns, at_ns;
};

struct nt_names {
	struct nt_keeper keeper;
	struct request *requests[N_REQUESTS]; /* oldest first */
	size_t count;
	struct use all, owners[N_OWNERS];
	uint64_t missing[NT_UNNAMED_REASONS];
	uint8_t bytes[NT_NAMES_REPLY_BYTES];
};

/* ---- shares of time ---- */

static uint64_t used_now(struct use *use, unsigned int share, uint64_t now)
{
	uint64_t granted = (now - use->at_ns) / share;

	use->used_ns -= granted < use->used_ns ? granted : use->used_ns;
	use->at_ns = now;
	return use->used_ns;
}

static struct use *use_of(struct nt_names *names, uint64_t owner, uint64_t now)
{
	struct use *least = names->owners;

	for (size_t i = 0; i < N_OWNERS; i++) {
		struct use *use = &names->owners[i];

		used_now(use, SHARE_OWNER, now);
		if (use->owner == owner)
			return use;
		if (use->used_ns < least->used_ns)
			least = use;
	}
	*least = (struct use){.owner = owner, .at_ns = now};
	return least;
}

static void charge(struct nt_names *names, uint64_t owner, uint64_t ns)
{
	uint64_t now = nt_now_ns();
	struct use *use = use_of(names, owner, now);

	used_now(&names->all, SHARE_ALL, now);
	names->all.used_ns += ns;
	use->used_ns += ns;
}

static bool has_time_left(struct nt_names *names, uint64_t owner)
{
	uint64_t now = nt_now_ns();

	return used_now(&names->all, SHARE_ALL, now) < AT_ONCE_ALL &&
	       use_of(names, owner, now)->used_ns < AT_ONCE_OWNER;
}

/*
 * Identifies the owner of a process: its user, whatever processes and cgroups that user makes; for
 * root's processes, the container. The directory belongs to the process's user even where its files
 * do not. Never returns 0.
 */
static uint64_t owner_of(uint32_t tgid, uint64_t cgroup_id)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u", tgid);
	if (stat(path, &st))
		return 1ULL << 62;
	return st.st_uid ? 1ULL << 61 | st.st_uid : 1ULL << 63 | cgroup_id;
}

/* ---- requests ---- */

struct nt_names *nt_names_open(void *secret, size_t size, int *err)
{
	struct nt_names *names = calloc(1, sizeof(*names));

	*err = -ENOMEM;
	if (!names)
		return NULL;
	*err = nt_keeper_start(&names->keeper, secret, size);
	if (!*err)
		return names;
	free(names);
	return NULL;
}

static void remove_request(struct nt_names *names, size_t i)
{
	free(names->requests[i]);
	names->count--;
	memmove(&names->requests[i], &names->requests[i + 1],
		(names->count - i) * sizeof(names->requests[0]));
}

/* The tracer may no longer kill the keeper; it ends because we close its socket. */
static void end_keeper(struct nt_names *names, int patience_ms)
{
	if (names->keeper.fd < 0)
		return;
	close(names->keeper.fd);
	names->keeper.fd = -1;
	while (!waitpid(names->keeper.pid, NULL, WNOHANG) && patience_ms-- > 0)
		poll(NULL, 0, 1);
}

void nt_names_close(struct nt_names *names)
{
	if (!names)
		return;
	end_keeper(names, 100);
	while (names->count)
		remove_request(names, names->count - 1);
	free(names);
}

int nt_names_fd(const struct nt_names *names)
{
	return names->keeper.fd;
}

static size_t count_asked(const struct nt_names *names, uint64_t owner)
{
	size_t all = 0;

	for (size_t i = 0; i < names->count; i++) {
		const struct request *r = names->requests[i];

		if (r->state != ASKED)
			continue;
		if (r->what.owner == owner)
			return NT_KEEPER_WORKERS;
		all++;
	}
	return all;
}

/* Sends the oldest request of each owner first, so that no owner waits for another. */
static void send_requests(struct nt_names *names)
{
	for (size_t i = 0; i < names->count && names->keeper.fd >= 0; i++) {
		struct request *r = names->requests[i];

		if (r->state != WAITS || count_asked(names, r->what.owner) >= NT_KEEPER_WORKERS)
			continue;
		if (send(names->keeper.fd, &r->what, sizeof(r->what), MSG_NOSIGNAL | MSG_DONTWAIT) <
		    0)
			return; /* if the keeper is gone, receive() notices it */
		r->state = ASKED;
		r->since_ns = nt_now_ns();
	}
}

/* ---- answers ---- */

/* Reports the result of the request at this place, and removes the request. */
static void settle(struct nt_names *names, size_t i, enum nt_unnamed why, struct nt_frame *frames,
		   size_t n, nt_named named, void *context)
{
	uint64_t number = names->requests[i]->what.number;

	if (why)
		names->missing[why]++;
	remove_request(names, i);
	named(context, number, why, frames, n);
}

static size_t count_of(const struct nt_names *names, uint64_t owner)
{
	size_t n = 0;

	for (size_t i = 0; i < names->count; i++)
		n += names->requests[i]->what.owner == owner;
	return n;
}

/*
 * Makes room for a request of this owner: the newest request of the owner with the most, which no
 * worker has yet, is given up. Returns false if no owner has at least two more than this one.
 */
static bool make_room(struct nt_names *names, uint64_t owner, nt_named named, void *context)
{
	size_t most = count_of(names, owner) + 1, newest = N_REQUESTS;

	if (names->count < N_REQUESTS)
		return true;
	for (size_t i = 0; i < names->count; i++) {
		const struct request *r = names->requests[i];
		size_t n = r->state == WAITS ? count_of(names, r->what.owner) : 0;

		if (n > most || (n == most && newest < N_REQUESTS)) {
			most = n;
			newest = i;
		}
	}
	if (newest == N_REQUESTS)
		return false;
	settle(names, newest, NT_UNNAMED_BUSY, NULL, 0, named, context);
	return true;
}

bool nt_names_ask(struct nt_names *names, const struct nt_names_request *request,
		  uint64_t cgroup_id, nt_named named, void *context)
{
	uint64_t owner = owner_of(request->tgid, cgroup_id);
	struct request *r = NULL;

	if (names->keeper.fd < 0) {
		names->missing[NT_UNNAMED_DIED]++;
		return false;
	}
	if (has_time_left(names, owner) && make_room(names, owner, named, context))
		r = malloc(sizeof(*r));
	if (!r) {
		names->missing[NT_UNNAMED_BUSY]++;
		return false;
	}
	r->state = WAITS;
	r->since_ns = nt_now_ns();
	r->what = *request;
	r->what.owner = owner;
	names->requests[names->count++] = r;
	send_requests(names);
	return true;
}

/*
 * Charges the CPU time. An owner that keeps a worker waiting keeps it from others, and pays for a
 * part of that too.
 */
static void charge_for(struct nt_names *names, const struct request *r, enum nt_unnamed why,
		       uint64_t cpu_ns)
{
	uint64_t took_ns = nt_now_ns() - r->since_ns, ns = took_ns / 8;

	if (why == NT_UNNAMED_DIED || why == NT_UNNAMED_DEADLINE || why == NT_UNNAMED_LIMIT)
		ns = took_ns < FAILURE_NS ? FAILURE_NS : took_ns;
	charge(names, r->what.owner, cpu_ns > ns ? cpu_ns : ns);
}

static void take_reply(struct nt_names *names, size_t length, nt_named named, void *context)
{
	struct nt_frame frames[NT_STACK_DEPTH];
	struct nt_names_reply head = {};
	int err = nt_names_decode(names->bytes, length, &head, frames);

	for (size_t i = 0; i < names->count; i++) {
		struct request *r = names->requests[i];

		if (r->state != ASKED || r->what.number != head.number)
			continue;
		if (err) /* only a worker that was taken over writes such a reply */
			head = (struct nt_names_reply){.why = NT_UNNAMED_DIED};
		charge_for(names, r, head.why, head.cpu_ns);
		settle(names, i, head.why, frames, head.n, named, context);
		return;
	}
	if (!err) /* we gave up the request before */
		nt_frames_free(frames, head.n);
}

static void receive(struct nt_names *names, nt_named named, void *context)
{
	while (names->keeper.fd >= 0) {
		ssize_t n = recv(names->keeper.fd, names->bytes, sizeof(names->bytes),
				 MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			end_keeper(names, 0);
		else if ((size_t)n <= sizeof(names->bytes))
			take_reply(names, n, named, context);
	}
}

static void give_up_late_ones(struct nt_names *names, nt_named named, void *context)
{
	uint64_t now = nt_now_ns();

	for (size_t i = 0; i < names->count;) {
		struct request *r = names->requests[i];
		bool asked = r->state == ASKED;

		if (names->keeper.fd < 0) {
			settle(names, i, NT_UNNAMED_DIED, NULL, 0, named, context);
		} else if (now > r->since_ns + REQUEST_NS) {
			if (asked)
				charge_for(names, r, NT_UNNAMED_DEADLINE, 0);
			settle(names, i, asked ? NT_UNNAMED_DEADLINE : NT_UNNAMED_BUSY, NULL, 0,
			       named, context);
		} else if (!asked && !has_time_left(names, r->what.owner)) {
			/* earlier requests used up the owner's time */
			settle(names, i, NT_UNNAMED_BUSY, NULL, 0, named, context);
		} else {
			i++;
		}
	}
}

void nt_names_turn(struct nt_names *names, nt_named named, void *context)
{
	if (names->keeper.fd < 0) /* reap the keeper once it has ended */
		waitpid(names->keeper.pid, NULL, WNOHANG);
	receive(names, named, context);
	give_up_late_ones(names, named, context);
	send_requests(names);
}

bool nt_names_wait(const struct nt_names *names)
{
	return names->count;
}

const uint64_t *nt_names_missing(const struct nt_names *names)
{
	return names->missing;
}
