// SPDX-License-Identifier: GPL-2.0
#include "capture/standby.h"

#include <string.h>

/* The mean cost of a slot follows the last ones: each counts for 1/MEAN_OF. */
#define MEAN_OF 8

/* xorshift64*: any spread of looks over a slot will do that no rhythm of the host follows. */
static uint64_t random_below(struct nt_standby *s, uint64_t range)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return s->random * 0x2545f4914f6cdd1dULL % range;
}

static void begin_slot(struct nt_standby *s, uint64_t began_ns)
{
	s->slot_began_ns = began_ns;
	s->slot_ns = NT_STANDBY_SLOT_TIMES * s->slot_cost_ns;
	if (s->slot_ns < NT_STANDBY_SLOT_NS)
		s->slot_ns = NT_STANDBY_SLOT_NS;
	s->slot_cpu_ns = 0;
	s->again = 0;
	s->look_at_ns = began_ns + random_below(s, s->slot_ns);
}

static void change(struct nt_standby *s, enum nt_standby_state state, uint64_t now_ns)
{
	s->spent_ns[s->state] += now_ns - s->since_ns;
	s->since_ns = now_ns;
	s->state = state;
	s->changes++;
}

void nt_standby_begin(struct nt_standby *s, uint64_t quiet_ns, uint64_t now_ns, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->state = NT_STANDBY_WAITING;
	s->quiet_ns = quiet_ns;
	s->since_ns = now_ns;
	s->random = seed | 1; /* 0 would stay 0 */
	begin_slot(s, now_ns);
}

uint64_t nt_standby_due_ns(const struct nt_standby *s)
{
	return s->state == NT_STANDBY_WAITING ? s->look_at_ns : s->last_stall_ns + s->quiet_ns;
}

/* The slot has had its looks: the next one begins where it ends, or now if that is past. */
static void end_slot(struct nt_standby *s, uint64_t now_ns)
{
	uint64_t end_ns = s->slot_began_ns + s->slot_ns;

	if (!s->slot_cost_ns)
		s->slot_cost_ns = s->slot_cpu_ns;
	s->slot_cost_ns += (int64_t)(s->slot_cpu_ns - s->slot_cost_ns) / MEAN_OF;
	begin_slot(s, end_ns > now_ns ? end_ns : now_ns);
}

bool nt_standby_looked(struct nt_standby *s, const struct nt_standby_look *look, uint64_t now_ns)
{
	s->cannot_look = look->failed;
	s->looks += !look->failed;
	s->look_cpu_ns += look->cpu_ns;
	s->slot_cpu_ns += look->cpu_ns;
	if (!s->again) /* the looks that follow come at no random time */
		s->sampled_excess_ns += look->weight * s->slot_ns;
	if (look->young && !look->suspicious && s->again < NT_STANDBY_AGAIN_TIMES) {
		s->again++;
		s->look_at_ns = now_ns + NT_STANDBY_AGAIN_NS;
		return false;
	}
	end_slot(s, now_ns);
	return look->suspicious && now_ns >= s->retry_ns;
}

void nt_standby_attached(struct nt_standby *s, uint64_t now_ns)
{
	change(s, NT_STANDBY_ATTACHED, now_ns);
	s->last_stall_ns = now_ns;
	s->stalled = false;
	s->cannot_attach = s->cannot_look = false;
}

void nt_standby_attach_failed(struct nt_standby *s, uint64_t now_ns)
{
	s->attach_failures++;
	s->cannot_attach = true;
	s->retry_ns = now_ns + NT_STANDBY_RETRY_NS;
}

void nt_standby_stalled(struct nt_standby *s, uint64_t now_ns)
{
	s->stalled = true;
	if (s->last_stall_ns < now_ns)
		s->last_stall_ns = now_ns;
}

bool nt_standby_is_quiet(const struct nt_standby *s, uint64_t now_ns)
{
	return s->state == NT_STANDBY_ATTACHED && now_ns >= s->last_stall_ns + s->quiet_ns;
}

void nt_standby_detached(struct nt_standby *s, uint64_t now_ns)
{
	s->false_alarms += !s->stalled;
	change(s, NT_STANDBY_WAITING, now_ns);
	begin_slot(s, now_ns);
}

uint64_t nt_standby_spent_ns(const struct nt_standby *s, enum nt_standby_state state,
			     uint64_t now_ns)
{
	return s->spent_ns[state] + (s->state == state ? now_ns - s->since_ns : 0);
}

const char *nt_standby_word(enum nt_standby_state state)
{
	return state == NT_STANDBY_WAITING    ? "standby"
	       : state == NT_STANDBY_ATTACHED ? "attached"
					      : NULL;
}
