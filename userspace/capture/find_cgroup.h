/* SPDX-License-Identifier: GPL-2.0 */
/* Finds the cgroup of a container, of a pod or of a unit of systemd, by the names of directories.
 */
#pragma once

#include <limits.h>

#include "base/error.h"
#include "terms/settings.h"

#define NT_CGROUP_LEN 256

/* Returns the option that gave settings->cgroup: "--cgroup", "--container", … */
const char *nt_cgroup_option(const struct nt_settings *settings);

/* The first mount of cgroup v2, or NULL. */
const char *nt_cgroup_mount(void);

/*
 * Writes the path of the one cgroup v2 that settings->cgroup names in the way of
 * settings->cgroup_by. A container may be named by its ID, 12 digits of it or more, or by what
 * docker, podman or nerdctl knows it by: these are asked, as commands, for 9 s at most.
 */
bool nt_find_cgroup(const struct nt_settings *settings, char path[PATH_MAX],
		    struct nt_error *error);
