// SPDX-License-Identifier: GPL-2.0
#include "output/writer.h"

struct nt_writer nt_writer_of(enum nt_output output, bool wide)
{
	struct nt_writer writer = output == NT_OUTPUT_JSON ? nt_json_writer : nt_text_writer;

	writer.wide = wide;
	return writer;
}
