/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The words that documents and records use for the enums of bpf/nagletrace.h; NULL for INVALID and
 * unknown values.
 */
#pragma once

#include "bpf/nagletrace.h"
#include "terms/unnamed.h"

const char *nt_hold_reason_word(unsigned int reason);
const char *nt_release_word(unsigned int release);
const char *nt_ack_release_word(unsigned int release);
const char *nt_ack_reason_word(unsigned int reason);
const char *nt_cause_word(unsigned int cause);
const char *nt_evidence_word(unsigned int evidence);
const char *nt_pattern_word(unsigned int pattern);
const char *nt_dropped_word(unsigned int where);
const char *nt_untraced_word(unsigned int kind);
const char *nt_unnamed_word(unsigned int why);
