// SPDX-License-Identifier: GPL-2.0
// links: userspace/terms/container.c
/* /proc/PID/cgroup of any bytes: users may choose the names of cgroups. */
#include "fuzz.h"
#include "terms/container.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size, 16384), path[64];
	static const char *const roots[] = {NULL, "", "/a", "/kubepods/burstable/x"};
	struct nt_container found;

	if (!text)
		return 0;
	nt_cgroups_parse(text, roots[size % 4], path, sizeof(path), &found);
	FUZZ_CHECK(!path[0] || path[0] == '/');
	FUZZ_CHECK(strlen(path) < sizeof(path) && !strchr(path, '\n'));
	FUZZ_CHECK(strspn(found.id, "0123456789abcdef") == strlen(found.id));
	FUZZ_CHECK(!found.id[0] || strlen(found.id) == sizeof(found.id) - 1);
	FUZZ_CHECK(strspn(found.pod_uid, "0123456789abcdef-") == strlen(found.pod_uid));
	FUZZ_CHECK(!found.pod_uid[0] || strlen(found.pod_uid) == 32 || strlen(found.pod_uid) == 36);
	free(text);
	return 0;
}
