/* SPDX-License-Identifier: GPL-2.0 */
/* The record of one stall, or of a hold that is none, as an object. */
#ifndef NT_JSON_STALL_H
#define NT_JSON_STALL_H

#include <json-c/json.h>
#include "stacks.h"
#include "stall.h"

struct json_object *nt_json_stall_record(const struct nt_stall *stall, struct nt_stacks *stacks);

#endif /* NT_JSON_STALL_H */
