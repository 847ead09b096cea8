/* SPDX-License-Identifier: GPL-2.0 */
/* What a stall says in words: what happened, why, and what to change at the end that is ours. */
#ifndef NT_ADVICE_H
#define NT_ADVICE_H

#include <stddef.h>
#include "stall.h"

#define NT_ADVICE_LEN 400

struct nt_advice {
	char pattern[NT_ADVICE_LEN];
	char why[NT_ADVICE_LEN];
	char evidence[NT_ADVICE_LEN];
	char fix[NT_ADVICE_LEN];
};

/* Fills *advice for a stall whose pattern (enum nt_pattern) is given. Names in it are escaped. */
void nt_advice_for(const struct nt_stall *stall, unsigned int pattern, struct nt_advice *advice);

/* "java[4242]", escaped; "unknown" where nobody was found. */
void nt_format_process(const struct nt_process *process, char *out, size_t size);

#endif /* NT_ADVICE_H */
