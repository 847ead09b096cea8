/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decides when a daemon in standby looks at sockets, attaches and detaches. It is given what
 * happened and at what time, and knows no clock, socket or hook itself.
 *
 * While nothing is attached, time is divided into slots, with one look at a random time in each. A
 * look that finds an ACK late is suspicious: the hooks are to be attached. One that finds a young
 * hold, which may yet become a stall, is followed by others a little later: so a stall is found in
 * all of its 40 ms, and not only in those after NT_LATE_NS. The slots are long enough for looks to
 * take less than a thousandth of a CPU.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Two looks a second find one stall of 40 ms a second, in 4 of 100 looks, within 60 s at 99 %. */
#define NT_STANDBY_SLOT_NS 500000000ULL

/* A slot is at least this multiple of the CPU time that its looks take. */
#define NT_STANDBY_SLOT_TIMES 1000

/* After a look that found a young hold, others follow: at what distance, and how many. */
#define NT_STANDBY_AGAIN_NS    15000000ULL
#define NT_STANDBY_AGAIN_TIMES 2

/* How long the next attempt waits after hooks could not be attached. */
#define NT_STANDBY_RETRY_NS 10000000000ULL

enum nt_standby_state {
	NT_STANDBY_OFF = 0, /* without --standby: always attached */
	NT_STANDBY_WAITING, /* nothing is attached */
	NT_STANDBY_ATTACHED,
	NT_STANDBY_STATES,
};

struct nt_standby {
	enum nt_standby_state state;
	uint64_t quiet_ns; /* the hooks are detached after this time without a stall */
	uint64_t since_ns; /* when it came into this state; CLOCK_MONOTONIC, as all times here */
	uint64_t spent_ns[NT_STANDBY_STATES]; /* in each state before */
	uint64_t changes;
	uint64_t attach_failures;
	uint64_t false_alarms;  /* times that it was attached, and no stall came */
	bool cannot_attach;     /* the last attempt failed */
	bool cannot_look;       /* the last look failed */
	uint64_t retry_ns;      /* no attempt before that time */
	uint64_t last_stall_ns; /* or when the hooks were attached, if that is later */
	bool stalled;           /* since they were attached */

	uint64_t looks, look_cpu_ns;
	/*
	 * Estimated from them: its rate is the time lost each second. What is left of the slot in
	 * which the hooks are attached is in it, and counted exactly too: half a slot in the mean.
	 */
	uint64_t sampled_excess_ns;

	uint64_t slot_began_ns, slot_ns, look_at_ns;
	uint64_t slot_cpu_ns;  /* of this slot's looks so far */
	uint64_t slot_cost_ns; /* mean of the slots before; 0: there was none */
	unsigned int again;    /* looks that followed the slot's first */
	uint64_t random;       /* state of the generator */
};

/* What one look at all sockets found. */
struct nt_standby_look {
	uint64_t weight; /* of the stalls that it found: each stands for 1 slot, or for 2 */
	bool suspicious; /* an ACK is late, or a cork has held for long */
	bool young;      /* a hold may turn out to be a stall soon */
	bool failed;     /* it could not be made, or not to its end */
	uint64_t cpu_ns; /* that the look took */
};

/* Begins, with nothing attached. seed: any number. */
void nt_standby_begin(struct nt_standby *standby, uint64_t quiet_ns, uint64_t now_ns,
		      uint64_t seed);

/* Returns when the next look, or the next question whether to detach, is due. */
uint64_t nt_standby_due_ns(const struct nt_standby *standby);

/* A look is over. Returns true if the hooks are to be attached now. */
bool nt_standby_looked(struct nt_standby *standby, const struct nt_standby_look *look,
		       uint64_t now_ns);

/* The hooks are attached, or could not be; the next look comes in any case. */
void nt_standby_attached(struct nt_standby *standby, uint64_t now_ns);
void nt_standby_attach_failed(struct nt_standby *standby, uint64_t now_ns);

/* The tracer reported a stall, which ended at that time. */
void nt_standby_stalled(struct nt_standby *standby, uint64_t now_ns);

/* Has it been quiet for long enough to detach? */
bool nt_standby_is_quiet(const struct nt_standby *standby, uint64_t now_ns);
void nt_standby_detached(struct nt_standby *standby, uint64_t now_ns);

/* Returns how long it was in a state in all, up to now_ns. */
uint64_t nt_standby_spent_ns(const struct nt_standby *standby, enum nt_standby_state state,
			     uint64_t now_ns);

/* Returns "standby", "attached"; NULL: it has no state. */
const char *nt_standby_word(enum nt_standby_state state);
