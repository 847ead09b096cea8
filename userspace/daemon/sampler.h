/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon in standby: looks at sockets while nothing is attached, has the session attach when a
 * look is suspicious, and detach when it was quiet for long enough. session.standby decides when.
 */
#pragma once

#include "base/error.h"
#include "capture/asked.h"
#include "capture/session.h"
#include "sample/by_iterator.h"

struct nt_loop;

struct nt_sampler {
	struct nt_session *session;
	struct nt_by_iterator sockets;
	int timer;
	struct nt_standby_look look; /* the one under way */
	struct nt_sampled suspect;   /* the first that it found suspicious */
	struct nt_asked asked;       /* with a filter by process: the answers of this look */
	/* likewise: sockets of which nobody knows yet whose they are */
	struct nt_sampled *undecided;
	size_t n_undecided, room;
	bool looked; /* likewise: all sockets are looked at, and some are undecided */
	uint64_t complained_ns;
};

/*
 * Detaches the session, which has just been started, and has the loop make the looks. Belongs
 * before the process gives up its privileges.
 */
bool nt_sampler_start(struct nt_sampler *sampler, struct nt_session *session, struct nt_loop *loop,
		      struct nt_error *error);
void nt_sampler_stop(struct nt_sampler *sampler);
