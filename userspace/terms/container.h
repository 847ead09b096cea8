/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells by the names in a cgroup's path which container a process is in, and which pod of
 * Kubernetes. A name is a claim: whoever may make cgroups (delegation, a container's root) may give
 * them such names. SECURITY.md says what follows from that.
 */
#pragma once

#include <stddef.h>

#define NT_CONTAINER_ID_LEN 65 /* 64 hexadecimal digits */
#define NT_POD_UID_LEN      37 /* a UUID; or 32 hexadecimal digits */

/* Both are "" where the path names none, and padded with NUL. */
struct nt_container {
	char id[NT_CONTAINER_ID_LEN];
	char pod_uid[NT_POD_UID_LEN];
};

/* Finds the container and the pod that one path names. */
void nt_container_of_path(const char *path, struct nt_container *container);

/*
 * Takes the text of /proc/PID/cgroup, and the path of cgroup v2 at which the cgroup namespace of
 * its reader begins: "" for the host's root, NULL where nobody knows. Gives the path of cgroup v2
 * from the host's root on ("" where there is no v2), and the container that the first of its lines
 * names, v2 before v1. A line whose root is not known, as one of v1, counts from the root on that
 * the reader and the process have in common.
 */
void nt_cgroups_parse(const char *text, const char *root, char *path, size_t size,
		      struct nt_container *container);
