// SPDX-License-Identifier: GPL-2.0
#include "sample/by_iterator.h"

#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "base/clock.h"
#include "capture/kernel.h"
#include "sample.skel.h"

/* direct: the program loads from sockets directly, which most verifiers allow. */
static int load_once(struct nt_by_iterator *by, const struct nt_settings *settings, bool direct)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = settings->btf);
	struct nt_config *config;
	int err;

	by->skel = sample_bpf__open_opts(&options);
	if (!by->skel)
		return -errno;
	config = (struct nt_config *)&by->skel->rodata->nt_config;
	config->tick_ns = nt_kernel_tick_ns();
	config->direct = direct;
	config->all_holds = settings->all_holds;
	err = sample_bpf__load(by->skel);
	/* libbpf takes a feature for missing if it could not try it for lack of memory */
	if (!err && !by->skel->bss)
		err = -ENOMEM;
	if (err) {
		sample_bpf__destroy(by->skel);
		by->skel = NULL;
	}
	return err;
}

static int load(struct nt_by_iterator *by, const struct nt_settings *settings)
{
	int err = load_once(by, settings, true);

	return err && err != -EPERM && err != -ENOMEM ? load_once(by, settings, false) : err;
}

int nt_by_iterator_open(struct nt_by_iterator *by, const struct nt_settings *settings)
{
	int err;

	memset(by, 0, sizeof(*by));
	by->netns = settings->netns;
	err = nt_places_open(&by->places);
	if (!err)
		err = load(by, settings);
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

static int look_here(struct nt_by_iterator *by, nt_iterator_take *take, void *context)
{
	const struct nt_sampled *sampled;
	ssize_t n;

	while ((n = nt_iterator_next(&by->reader, (const void **)&sampled)) > 0)
		for (ssize_t i = 0; i < n; i++)
			take(context, &sampled[i]);
	return n;
}

/* The iterator belongs to the namespace in which it is made, and may be read from ours. */
static int look_at(struct nt_by_iterator *by, const struct nt_place *place, nt_iterator_take *take,
		   void *context)
{
	int err = nt_places_enter(&by->places, place), back;

	if (err == -EPERM || err == -EACCES)
		by->refused++;
	if (err == -EPERM || err == -EACCES || err == -ESRCH)
		return 0;
	if (!err)
		err = nt_iterator_begin(&by->reader, by->sockets, sizeof(struct nt_sampled));
	back = nt_places_leave(&by->places, place);
	if (!err)
		err = back;
	return err ? err : look_here(by, take, context);
}

int nt_by_iterator_look(struct nt_by_iterator *by, nt_iterator_take *take, void *context)
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
	return err ? err : n;
}
