/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The audit: counts the delayed-ACK timers that sent their ACK unseen by our programs, because the
 * machine does not run our programs everywhere. In each network namespace it compares their count
 * with the kernel's own counter.
 *
 * The result is never too high: we read the kernel's counter before ours, so a timer that expires
 * meanwhile counts as seen. It may be too low: a namespace that ends takes its last timers with it.
 * With more namespaces than it has room for (4096) the number is not known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "terms/settings.h"

struct nt_tracer;
struct nt_audit;

/*
 * Begins to count: call it when the hooks are attached. Returns NULL if the number cannot be known:
 * if the kernel does not show the namespaces, or by function hooks with a filter that leaves
 * sockets out. The other functions accept NULL.
 */
struct nt_audit *nt_audit_new(const struct nt_tracer *tracer, const struct nt_settings *settings);
void nt_audit_free(struct nt_audit *audit);

/* Compares anew; unless now is set, a reading of a moment ago suffices. */
void nt_audit_read(struct nt_audit *audit, bool now);

/* The hooks are detached: the readings so far stay. */
void nt_audit_stop(struct nt_audit *audit);

/*
 * The first: the hooks are about to be detached for a while, in which no timer counts as unseen.
 * The second: they are attached again.
 */
void nt_audit_pause(struct nt_audit *audit);
void nt_audit_resume(struct nt_audit *audit);

/*
 * Counts the unseen timers since the audit began, as of the last reading; false: the number is not
 * known.
 */
bool nt_audit_unseen(const struct nt_audit *audit, uint64_t *unseen);

/*
 * Are the timers from from_ns on counted? Each namespace in which a process lives was read from
 * read_ns on, and none has ended since from_ns, or was listed late. One that came and went between
 * two readings is not known. Both are times of CLOCK_MONOTONIC.
 */
bool nt_audit_whole(const struct nt_audit *audit, uint64_t from_ns, uint64_t read_ns);

/*
 * May a timer in this namespace have expired unseen between these times (CLOCK_MONOTONIC)? One that
 * did excuses one silence, and is used up. Where nobody knows, the answer is yes.
 */
bool nt_audit_excuses(struct nt_audit *audit, uint32_t netns, uint64_t begin_ns, uint64_t end_ns);
