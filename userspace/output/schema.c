// SPDX-License-Identifier: GPL-2.0
#include "output/schema.h"

/* The assembler finds the file by the -I of the build. */
__asm__(".section .rodata\n"
	".global nt_schema, nt_schema_end\n"
	"nt_schema:\n"
	".incbin \"nagletrace.schema.json\"\n"
	"nt_schema_end:\n"
	".byte 0\n"
	".previous\n");
