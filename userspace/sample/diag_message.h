/* SPDX-License-Identifier: GPL-2.0 */
/* Reads the kernel's answers about TCP sockets, sock_diag(7), and judges what they say. */
#pragma once

#include <stddef.h>
#include "bpf/nagletrace.h"

typedef void nt_sampled_take(void *context, const struct nt_sampled *sampled);

/*
 * Reads the messages of a datagram, which belong to this request, and calls take for each socket
 * that holds back less than a segment. Returns 1: there are more to come, 0: those were the last,
 * or -errno: the kernel refused, or -EPROTO: that is no answer.
 */
int nt_diag_parse(const void *datagram, size_t length, __u32 request, nt_sampled_take *take,
		  void *context);
