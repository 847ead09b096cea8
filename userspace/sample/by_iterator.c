// SPDX-License-Identifier: GPL-2.0
#include "sample/by_iterator.h"

#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "base/clock.h"
#include "capture/processes.h"
#include "sample/object.h"
#include "sample.skel.h"

int nt_by_iterator_open(struct nt_by_iterator *by, const struct nt_settings *settings)
{
	int err;

	memset(by, 0, sizeof(*by));
	by->netns = settings->netns;
	err = nt_places_open(&by->places);
	if (!err)
		err = nt_sample_load(&by->skel, settings, false);
	if (err)
		return err;
	by->sockets = bpf_program__attach_iter(by->skel->progs.dump_held, NULL);
	if (!by->sockets)
		return -errno;
	by->descriptors = bpf_program__attach_iter(by->skel->progs.dump_owners, NULL);
	return by->descriptors ? 0 : -errno;
}

void nt_by_iterator_close(struct nt_by_iterator *by)
{
	nt_iterator_end(&by->reader);
	bpf_link__destroy(by->sockets);
	bpf_link__destroy(by->descriptors);
	sample_bpf__destroy(by->skel);
	nt_owner_list_clear(&by->owners);
	nt_places_close(&by->places);
	memset(by, 0, sizeof(*by));
	by->places.own = -1;
}

static int look_here(struct nt_by_iterator *by, nt_sampled_take *take, void *context)
{
	const struct nt_sampled *sampled;
	ssize_t n;

	while ((n = nt_iterator_next(&by->reader, (const void **)&sampled)) > 0)
		for (ssize_t i = 0; i < n; i++)
			take(context, &sampled[i]);
	return n;
}

/* The iterator belongs to the namespace in which it is made, and may be read from ours. */
static int look_at(struct nt_by_iterator *by, const struct nt_place *place, nt_sampled_take *take,
		   void *context)
{
	int err = nt_places_enter(&by->places, place), back;

	if (err == -EPERM || err == -EACCES)
		by->refused++;
	if (err == -ESRCH)
		by->scanned_ns = 0; /* another process may live there */
	if (err == -EPERM || err == -EACCES || err == -ESRCH)
		return 0;
	if (!err)
		err = nt_iterator_begin(&by->reader, by->sockets, sizeof(struct nt_sampled));
	back = nt_places_leave(&by->places, place);
	if (!err)
		err = back;
	return err ? err : look_here(by, take, context);
}

int nt_by_iterator_look(struct nt_by_iterator *by, nt_sampled_take *take, void *context)
{
	uint64_t now = nt_now_ns();
	int err = 0;

	if (!by->scanned_ns || now - by->scanned_ns >= NT_SECOND_NS) {
		err = nt_places_scan(&by->places, by->netns);
		by->scanned_ns = now;
	}
	by->refused = 0;
	for (size_t i = 0; !err && i < by->places.count; i++)
		err = look_at(by, &by->places.list[i], take, context);
	return err;
}

int nt_by_iterator_scan(struct nt_by_iterator *by, nt_owner_wanted *wanted, void *context)
{
	const struct nt_owner *owners;
	int err;
	ssize_t n;

	nt_owner_list_clear(&by->owners);
	by->skel->bss->owners_look++;
	err = nt_iterator_begin(&by->reader, by->descriptors, sizeof(struct nt_owner));
	if (err)
		return err;
	while (!err && (n = nt_iterator_next(&by->reader, (const void **)&owners)) > 0)
		for (ssize_t i = 0; !err && i < n; i++)
			if (owners[i].sk)
				err = nt_owner_list_add(&by->owners, &owners[i], wanted, context);
	nt_iterator_end(&by->reader);
	nt_process_take_root(&by->skel->bss->cgroup_root);
	return err ? err : n;
}
