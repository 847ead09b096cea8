// SPDX-License-Identifier: GPL-2.0
#include "sample/by_open.h"

#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "base/clock.h"
#include "sample/object.h"
#include "sample.skel.h"

int nt_by_open_open(struct nt_by_open *by, const struct nt_settings *settings)
{
	int err;

	memset(by, 0, sizeof(*by));
	err = nt_sample_load(&by->skel, settings, true);
	if (err)
		return err;
	by->descriptors = bpf_program__attach_iter(by->skel->progs.dump_held_open, NULL);
	return by->descriptors ? 0 : -errno;
}

void nt_by_open_close(struct nt_by_open *by)
{
	nt_iterator_end(&by->reader);
	bpf_link__destroy(by->descriptors);
	sample_bpf__destroy(by->skel);
	memset(by, 0, sizeof(*by));
}

int nt_by_open_look(struct nt_by_open *by, uint64_t until_ns, nt_sampled_take *take, void *context)
{
	const struct nt_sampled *sampled;
	ssize_t n;

	if (!by->reader.under_way) {
		int err;

		by->skel->bss->owners_look++;
		err = nt_iterator_begin(&by->reader, by->descriptors, sizeof(*sampled));
		if (err)
			return err;
	}
	do {
		n = nt_iterator_next(&by->reader, (const void **)&sampled);
		for (ssize_t i = 0; i < n; i++)
			if (sampled[i].end.sk)
				take(context, &sampled[i]);
	} while (n > 0 && nt_now_ns() < until_ns);
	return n > 0 ? 1 : n;
}
