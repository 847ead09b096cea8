/* SPDX-License-Identifier: GPL-2.0 */
/* json.c makes records from these parts, and the daemon its replies. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <json-c/json.h>
#include "summary/groups.h"
#include "attach/counts.h"
#include "attach/hooks.h"
#include "capture/origin.h"
#include "capture/stacks.h"
#include "capture/standby.h"

/* nt_json_new() makes an object that begins with its type. nt_json_write() writes it as one line,
 * frees it and flushes out; it returns 0 or -errno. */
struct json_object *nt_json_new(const char *type);
int nt_json_write(FILE *out, struct json_object *o);

void nt_json_number(struct json_object *o, const char *key, uint64_t value);
void nt_json_flag(struct json_object *o, const char *key, bool value);

/* Adds a string. NULL means that the key does not apply, and leaves it out. */
void nt_json_string(struct json_object *o, const char *key, const char *value);

/* Adds text from outside, at most length bytes: no program's name may break a line or the
 * encoding. */
void nt_json_foreign(struct json_object *o, const char *key, const char *value, size_t length);

/* Add a time: a time of day (ns since 1970) under a key; one of CLOCK_MONOTONIC (ns), as `time`;
 * the current time. */
void nt_json_time_of_day(struct json_object *o, const char *key, int64_t ns);
void nt_json_time(struct json_object *o, uint64_t mono_ns);
void nt_json_time_now(struct json_object *o);

/* Adds pid, tid (0: left out), comm, cgroup and container; nothing where the process is unknown. */
void nt_json_process(struct json_object *o, const struct nt_process *process, uint32_t tid);

/* Adds `cause` (enum nt_cause), and `reason` where the cause has one (nt_record_reason()). */
void nt_json_cause(struct json_object *o, unsigned int cause, unsigned int reason);

/* Adds container_id and pod_uid, as far as they are known. */
void nt_json_container(struct json_object *o, const struct nt_container *container);

/* Adds the live state of a socket, under `options`. */
void nt_json_options(struct json_object *o, bool nodelay, bool cork, bool pingpong, bool quick);

/* Adds a socket as events and `fix` name it: netns, family, local, remote. */
void nt_json_tuple(struct json_object *o, const struct nt_tuple *tuple);

void nt_json_totals(struct json_object *o, const struct nt_counts *counts);
void nt_json_dropped(struct json_object *o, const struct nt_counts *counts);

void nt_json_host(struct json_object *o, const struct nt_origin *origin);

/* Adds the host, its boot, and the ID of the key of ack_id. */
void nt_json_origin(struct json_object *o, const struct nt_origin *origin);

/* Adds the time that a report or totals are about, and whether the fleet's key changed in it. */
void nt_json_span(struct json_object *o, const struct nt_origin *origin, uint64_t span_ns);

/* Adds that late ACKs are reported, and whether filters leave some out. */
void nt_json_late_acks(struct json_object *o, const struct nt_origin *origin);

/* Adds the family, why it was chosen, and the hooks that are missing. */
void nt_json_hooks(struct json_object *o, const struct nt_hook_set *hooks);

/* Lists the hooks that are detached. */
void nt_json_detached(struct json_object *o, const struct nt_hook_set *hooks);

/* Adds the limit of --max-overhead and the share last measured, both in millionths of the time of
 * all CPUs; nothing without a limit. */
void nt_json_overhead(struct json_object *o, uint64_t limit_ppm, uint64_t share_ppm);

/* Adds the state of --standby with what was counted since the start, as `standby`; nothing without
 * that option. */
void nt_json_standby(struct json_object *o, const struct nt_standby *standby);

/* Makes the record of a stall, a hold or a late ACK. */
struct json_object *nt_json_stall(const struct nt_stall *stall, struct nt_stacks *stacks);

/* Makes a connection of a report, with its advice. */
struct json_object *nt_json_connection(struct nt_connection *c, struct nt_stacks *stacks);
