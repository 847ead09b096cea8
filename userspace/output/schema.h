/* SPDX-License-Identifier: GPL-2.0 */
/* The program contains the JSON Schema of its records, nagletrace.schema.json. */
#pragma once

extern const char nt_schema[];
extern const char nt_schema_end[];
