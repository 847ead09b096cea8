// SPDX-License-Identifier: GPL-2.0
#include "capture/kept.h"

#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "attach/iterator.h"
#include "attach/tracer.h"
#include "bpf/keep.h"
#include "nagletrace.skel.h"

static const struct {
	const char *option, *program;
} remedies[] = {
	[NT_KEPT_NODELAY] = {"TCP_NODELAY", NT_KEEP_NODELAY},
	[NT_KEPT_DELACK] = {"TCP_BPF_DELACK_MAX", NT_KEEP_DELACK},
};

const char *nt_kept_option(enum nt_kept_remedy remedy)
{
	return remedies[remedy].option;
}

enum nt_kept_remedy nt_kept_remedy_of(const char *program)
{
	enum nt_kept_remedy remedy = 0;

	while (remedy < NT_KEPT_REMEDIES && strcmp(program, remedies[remedy].program) != 0)
		remedy++;
	return remedy;
}

struct bpf_link *nt_kept_open(const struct nt_tracer *tracer)
{
	struct bpf_program *prog = tracer->skel->progs.dump_kept;

	return bpf_program__autoload(prog) ? bpf_program__attach_iter(prog, NULL) : NULL;
}

int nt_kept_count(const struct bpf_link *list, uint64_t counts[NT_KEPT_REMEDIES])
{
	struct nt_iterator reader = {};
	const void *entries;
	ssize_t n;
	int err;

	memset(counts, 0, NT_KEPT_REMEDIES * sizeof(counts[0]));
	if (!list)
		return -EOPNOTSUPP;
	err = nt_iterator_begin(&reader, list, sizeof(struct nt_kept_program));
	if (err)
		return err;
	while ((n = nt_iterator_next(&reader, &entries)) > 0) {
		const struct nt_kept_program *kept = entries;

		for (ssize_t i = 0; i < n; i++) {
			enum nt_kept_remedy remedy = nt_kept_remedy_of(kept[i].name);

			if (remedy < NT_KEPT_REMEDIES)
				counts[remedy]++;
		}
	}
	return n;
}
