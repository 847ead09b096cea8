/* SPDX-License-Identifier: GPL-2.0 */
/* The JSON Schema of the records, nagletrace.schema.json, as part of the program. */
#ifndef NT_SCHEMA_H
#define NT_SCHEMA_H

extern const char nt_schema[];
extern const char nt_schema_end[];

#endif /* NT_SCHEMA_H */
