/* SPDX-License-Identifier: GPL-2.0 */
/* Parts that JSON objects have in common: json.c makes records of them, json_daemon.c replies. */
#ifndef NT_JSON_PARTS_H
#define NT_JSON_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <json-c/json.h>
#include "aggregate.h"
#include "counts.h"
#include "overhead.h"
#include "stacks.h"

/* An object that begins with its type; written as one line, freed and flushed: 0 or -errno. */
struct json_object *nt_json_new(const char *type);
int nt_json_write(FILE *out, struct json_object *o);

void nt_json_number(struct json_object *o, const char *key, uint64_t value);
void nt_json_flag(struct json_object *o, const char *key, bool value);

/* NULL: the key does not apply, and is left out. */
void nt_json_string(struct json_object *o, const char *key, const char *value);

/* Text from outside, of at most length bytes: no program's name may break a line or the encoding.
 */
void nt_json_foreign(struct json_object *o, const char *key, const char *value, size_t length);

/* A time of day (ns since 1970) under a key; that of a time of CLOCK_MONOTONIC (ns) as `time`; now.
 */
void nt_json_time_of_day(struct json_object *o, const char *key, int64_t ns);
void nt_json_time(struct json_object *o, uint64_t mono_ns);
void nt_json_time_now(struct json_object *o);

/* pid, tid (0: left out), comm and cgroup; nothing where the process is not known. */
void nt_json_process(struct json_object *o, const struct nt_process *process, uint32_t tid);

/* The live state of a socket, under `options`. */
void nt_json_options(struct json_object *o, bool nodelay, bool cork, bool pingpong, bool quick);
void nt_json_tuple(struct json_object *o, const struct nt_tuple *tuple);

/* Where the held write was made; nothing without --stacks. */
void nt_json_stack(struct json_object *o, const struct nt_stall *stall, struct nt_stacks *stacks);

void nt_json_totals(struct json_object *o, const struct nt_totals *t);
void nt_json_lost_counts(struct json_object *o, const struct nt_counts *counts);

/* Of the family's hooks those that are marked, by the names of functions and tracepoints. */
void nt_json_hooks(struct json_object *o, const char *key, const bool marked[NT_MAX_HOOKS]);

/* The limit of --max-overhead and what was measured last; nothing without a limit. */
void nt_json_overhead_state(struct json_object *o, const struct nt_overhead *overhead);

/* A connection of a report, with its advice. */
struct json_object *nt_json_connection(const struct nt_connection *c, struct nt_stacks *stacks);

#endif /* NT_JSON_PARTS_H */
