/* SPDX-License-Identifier: GPL-2.0 */
/* The words of docs and records for the enums of bpf/nagletrace.h; NULL for INVALID and unknown
 * values. */
#ifndef NT_WORDS_H
#define NT_WORDS_H

#include "../bpf/nagletrace.h"

const char *nt_hold_reason_word(unsigned int reason);
const char *nt_release_word(unsigned int release);
const char *nt_ack_end_word(unsigned int end);
const char *nt_ack_why_word(unsigned int why);
const char *nt_cause_word(unsigned int cause);
const char *nt_evidence_word(unsigned int evidence);
const char *nt_pattern_word(unsigned int pattern);
const char *nt_lost_word(unsigned int where);

#endif /* NT_WORDS_H */
