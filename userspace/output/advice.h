/* SPDX-License-Identifier: GPL-2.0 */
/* Puts a stall into words: what happened, why, and what to change at our end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/text.h"
#include "capture/stall.h"
#include "names/symbols.h"

#define NT_ADVICE_LEN 400

struct nt_advice {
	char pattern[NT_ADVICE_LEN];
	char why[NT_ADVICE_LEN];
	char evidence[NT_ADVICE_LEN];
	char fix[NT_ADVICE_LEN];
};

/* Fills *advice for a stall whose pattern (enum nt_pattern) is given. Names in it are escaped. */
void nt_advice_for(const struct nt_stall *stall, unsigned int pattern, struct nt_advice *advice);

/* Writes "java[4242]", escaped; "unknown" if no process was found. */
void nt_format_process(const struct nt_process *process, char *out, size_t size);

/* Writes "send_all", or "lib.so+0x1234" or an address where the frame has no name; escaped. */
void nt_format_frame(const struct nt_frame *frame, char *out, size_t size);

#define NT_PLACED_LEN (NT_ESCAPED_LEN(NT_USER_LEN) + 160)

/* Writes "java[4242] in pod 3f2a91c4…", or "… in container …" where no pod is known; full: both,
 * with all their digits. */
void nt_format_placed(const struct nt_process *process, bool full, char *out, size_t size);
