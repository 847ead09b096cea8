/* SPDX-License-Identifier: GPL-2.0 */
/* The program contains the JSON Schema of its records, nagletrace.schema.json. */
#ifndef NT_SCHEMA_H
#define NT_SCHEMA_H

extern const char nt_schema[];
extern const char nt_schema_end[];

#endif /* NT_SCHEMA_H */
