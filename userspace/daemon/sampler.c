// SPDX-License-Identifier: GPL-2.0
#include "daemon/sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/text.h"
#include "terms/tuple.h"
#include "output/advice.h"
#include "sample/estimate.h"

/* How often a failure that repeats is reported. */
#define COMPLAIN_EACH_NS (60 * NT_SECOND_NS)

static void complain(struct nt_sampler *sampler, const char *what, const char *on, int err)
{
	if (sampler->complained_ns && nt_now_ns() < sampler->complained_ns + COMPLAIN_EACH_NS)
		return;
	sampler->complained_ns = nt_now_ns();
	nt_log("standby: cannot %s%s%s: %s", what, on ? " " : "", on ? on : "", strerror(-err));
}

/* ---- a look ---- */

static bool process_wanted(struct nt_sampler *sampler, pid_t tgid)
{
	return tgid && nt_targets_match_once(&sampler->session->targets, tgid, &sampler->asked);
}

/* Is it of a process that the user asked for, at either end? A look names one process of many. */
static bool owner_wanted(struct nt_sampler *sampler, const struct nt_end *end)
{
	struct nt_owners *owners = &sampler->session->owners;
	struct nt_owner found[NT_OWNERS_OF_SOCKET];
	const struct nt_owner *peer;
	size_t n;

	n = nt_owner_list_find(&owners->list, end, found);
	for (size_t i = 0; i < n; i++)
		if (process_wanted(sampler, found[i].tgid))
			return true;
	peer = nt_owner_list_find_peer(&owners->list, &end->tuple);
	return peer && process_wanted(sampler, peer->tgid);
}

/* Counts a socket that may stall, or does. */
static void note(struct nt_sampler *sampler, const struct nt_sampled *sampled)
{
	bool suspicious = nt_sampled_is_suspicious(sampled);

	if (suspicious && !sampler->look.suspicious)
		sampler->suspect = *sampled;
	sampler->look.suspicious |= suspicious;
	sampler->look.young |= !suspicious;
	sampler->look.weight += nt_sampled_weight(sampled);
}

/* Without memory this look does not see it. */
static void decide_later(struct nt_sampler *sampler, const struct nt_sampled *sampled)
{
	if (sampler->n_undecided < sampler->room ||
	    !nt_grow(&sampler->undecided, &sampler->room, sizeof(*sampled)))
		sampler->undecided[sampler->n_undecided++] = *sampled;
}

static void take(void *context, const struct nt_sampled *sampled)
{
	const uint64_t in_ns = NT_STANDBY_AGAIN_NS * NT_STANDBY_AGAIN_TIMES;
	struct nt_sampler *sampler = context;

	if (!nt_sampled_is_suspicious(sampled) && !nt_sampled_may_stall_in(sampled, in_ns))
		return;
	if (!nt_tuple_wanted(sampler->session->settings, &sampled->end.tuple))
		return;
	if (nt_targets_any(&sampler->session->targets) &&
	    !process_wanted(sampler, sampled->end.tgid))
		decide_later(sampler, sampled);
	else
		note(sampler, sampled);
}

/* Goes on with listing the owners of sockets, and decides then. Returns 1 if there is more to do.
 */
static int decide(struct nt_sampler *sampler, uint64_t until_ns)
{
	if (nt_owners_go_on(&sampler->session->owners, until_ns))
		return 1;
	for (size_t i = 0; i < sampler->n_undecided; i++)
		if (owner_wanted(sampler, &sampler->undecided[i].end))
			note(sampler, &sampler->undecided[i]);
	return 0;
}

/* Goes on with the look for a slice. Returns 1: there is more to do, 0: it is done, or -errno. */
static int go_on(struct nt_sampler *sampler)
{
	uint64_t began = nt_cpu_ns(), until_ns = nt_now_ns() + NT_SLICE_NS;
	int more;

	if (sampler->looked)
		more = decide(sampler, until_ns);
	else
		more = nt_by_iterator_look_open(&sampler->sockets, until_ns, take, sampler);
	if (!more && !sampler->looked && sampler->n_undecided) {
		nt_owners_drop_look(&sampler->session->owners);
		more = sampler->looked = true;
	}
	sampler->look.cpu_ns += nt_cpu_ns() - began;
	return more;
}

static void end_look(struct nt_sampler *sampler)
{
	memset(&sampler->look, 0, sizeof(sampler->look));
	nt_asked_clear(&sampler->asked);
	free(sampler->undecided);
	sampler->undecided = NULL;
	sampler->n_undecided = sampler->room = 0;
	sampler->looked = false;
}

/* ---- attach and detach ---- */

/* Says on which grounds the hooks are attached. */
static void log_suspect(const struct nt_sampler *sampler)
{
	const struct nt_sampled *suspect = &sampler->suspect;
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN];
	char name[NT_ESCAPED_LEN(NT_COMM_LEN) + 16];
	struct nt_process process;

	nt_process_read(suspect->end.tgid, &process);
	process.tgid = suspect->end.tgid;
	nt_format_process(&process, name, sizeof(name));
	nt_format_address(&suspect->end.tuple, true, local, sizeof(local));
	nt_format_address(&suspect->end.tuple, false, remote, sizeof(remote));
	nt_log("standby: attached, since %s %s → %s %s %s", name, local, remote,
	       suspect->reason == NT_HOLD_NAGLE ? "waits for an ACK that is late by"
						: "has had bytes corked for",
	       nt_duration(suspect->reason == NT_HOLD_NAGLE ? nt_sampled_late_ns(suspect)
							    : suspect->untouched_ns)
		       .text);
}

static void attach(struct nt_sampler *sampler)
{
	struct nt_standby *standby = &sampler->session->standby;
	const char *failed = NULL;
	int err = nt_session_resume(sampler->session, &failed);

	if (err) {
		nt_standby_attach_failed(standby, nt_now_ns());
		complain(sampler, "attach to", failed, err);
		return;
	}
	nt_standby_attached(standby, nt_now_ns());
	if (!sampler->session->settings->quiet)
		log_suspect(sampler);
}

static void detach(struct nt_sampler *sampler)
{
	struct nt_standby *standby = &sampler->session->standby;
	int err = nt_session_pause(sampler->session);

	if (err)
		complain(sampler, "forget the state of sockets", NULL, err);
	nt_session_drain(sampler->session);
	/* a stall in the last records counts for this time */
	nt_standby_detached(standby, nt_now_ns());
	if (!sampler->session->settings->quiet)
		nt_log("standby: detached after %s without a stall",
		       nt_duration(standby->quiet_ns).text);
}

/* ---- the loop ---- */

/* Makes a look, or detaches, whichever is due. Returns when it wants to be called again. */
static uint64_t turn(struct nt_sampler *sampler)
{
	struct nt_standby *standby = &sampler->session->standby;
	bool attaches;
	int more;

	if (standby->state == NT_STANDBY_ATTACHED) {
		if (nt_standby_is_quiet(standby, nt_now_ns()))
			detach(sampler);
		return nt_standby_due_ns(standby);
	}
	more = go_on(sampler);
	if (more > 0)
		return nt_now_ns();
	if (more)
		complain(sampler, "look at the sockets", NULL, more);
	sampler->look.failed = more;
	attaches = nt_standby_looked(standby, &sampler->look, nt_now_ns());
	end_look(sampler);
	if (attaches)
		attach(sampler);
	return nt_standby_due_ns(standby);
}

static void on_due(void *context, uint32_t what)
{
	struct nt_sampler *sampler = context;

	nt_timer_set(sampler->timer, turn(sampler), 0);
}

bool nt_sampler_start(struct nt_sampler *sampler, struct nt_session *session, struct nt_loop *loop,
		      struct nt_error *error)
{
	const struct nt_settings *settings = session->settings;
	uint64_t seed = 0;
	int err;

	memset(sampler, 0, sizeof(*sampler));
	sampler->session = session;
	err = nt_by_iterator_open(&sampler->sockets, settings, true);
	if (err)
		return nt_error_set(
			error, err == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL,
			"--standby: this kernel cannot list the sockets of processes: %s",
			strerror(-err));
	if (!nt_started(nt_session_pause(session), error))
		return false;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = nt_now_ns();
	nt_standby_begin(&session->standby, settings->quiet_ns, nt_now_ns(), seed);
	sampler->timer =
		nt_loop_timer(loop, nt_standby_due_ns(&session->standby), 0, on_due, sampler);
	return nt_started(sampler->timer < 0 ? sampler->timer : 0, error);
}

void nt_sampler_stop(struct nt_sampler *sampler)
{
	if (!sampler->session) /* nobody has started it */
		return;
	nt_by_iterator_close(&sampler->sockets);
	end_look(sampler);
}
