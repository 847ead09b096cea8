// SPDX-License-Identifier: GPL-2.0
#include "base/each_process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

int nt_each_process(nt_process_call *call, void *context)
{
	const struct dirent *entry;
	DIR *proc = opendir("/proc");
	int result = 0;

	if (!proc)
		return -errno;
	while (!result && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			result = call(context, atoi(entry->d_name));
	closedir(proc);
	return result;
}

/* PROC_PID_INIT_INO, include/linux/proc_ns.h */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCU

bool nt_process_ids_are_the_hosts(void)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st))
		return errno == ENOENT; /* the kernel has no such namespaces */
	return st.st_ino == FIRST_PID_NAMESPACE;
}
