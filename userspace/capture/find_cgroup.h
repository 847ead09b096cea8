/* SPDX-License-Identifier: GPL-2.0 */
/* Finds the cgroup of a container, of a pod or of a unit of systemd, by the names of directories.
 */
#ifndef NT_FIND_CGROUP_H
#define NT_FIND_CGROUP_H

#include "base/error.h"
#include "terms/settings.h"

#define NT_CGROUP_LEN 256

/* The first mount of cgroup v2, or NULL. */
const char *nt_cgroup_mount(void);

/*
 * Writes the path of the one cgroup v2 that settings->cgroup names in the way of
 * settings->cgroup_by. A container may be named by its ID, the begin of it, or the name that
 * docker, podman or nerdctl has for it: these are asked, as commands, for 10 s at most.
 */
bool nt_find_cgroup(const struct nt_settings *settings, char path[NT_CGROUP_LEN],
		    struct nt_error *error);

#endif /* NT_FIND_CGROUP_H */
