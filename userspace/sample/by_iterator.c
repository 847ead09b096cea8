// SPDX-License-Identifier: GPL-2.0
#include "sample/by_iterator.h"

#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "bpf/nagletrace.h"
#include "base/clock.h"
#include "attach/kernel.h"
#include "attach/loading.h"
#include "capture/processes.h"
#include "sample.skel.h"

/* direct: the programs load from sockets directly, which most verifiers allow. */
static int load_opened(struct sample_bpf *skel, const struct nt_settings *settings, bool open,
		       bool direct)
{
	struct nt_config *config;
	int err;

	config = (struct nt_config *)&skel->rodata->nt_config;
	config->tick_ns = nt_kernel_tick_ns();
	skel->rodata->direct = direct;
	config->all_holds = settings->all_holds;
	bpf_program__set_autoload(skel->progs.dump_held, !open);
	bpf_program__set_autoload(skel->progs.dump_owners, !open);
	bpf_program__set_autoload(skel->progs.dump_held_open, open);
	err = sample_bpf__load(skel);
	/* libbpf takes a feature for missing if it could not try it for lack of memory */
	return err || skel->bss ? err : -ENOMEM;
}

static int load_once(struct sample_bpf **loaded, const struct nt_settings *settings,
		     const struct btf *kernel, bool open, bool direct)
{
	LIBBPF_OPTS(bpf_object_open_opts, options);
	struct nt_loading loading;
	struct sample_bpf *skel;
	int err, ended;

	nt_loading_begin(&loading, kernel, settings->btf, settings->verbose);
	options.btf_custom_path = loading.btf;
	skel = sample_bpf__open_opts(&options);
	err = skel ? nt_loading_types(&loading, skel->obj) : -errno;
	if (!err)
		err = load_opened(skel, settings, open, direct);
	ended = nt_loading_end(&loading);
	err = err ? err : ended;
	if (err)
		sample_bpf__destroy(skel);
	else
		*loaded = skel;
	return err;
}

/*
 * Loads, if open, the program that looks at the sockets which processes have open; else those that
 * look at the sockets of a namespace, and for their owners. Returns 0 or -errno, with *skel NULL.
 */
static int load(struct sample_bpf **skel, const struct nt_settings *settings, bool open)
{
	struct nt_kernel kernel;
	int err;

	*skel = NULL;
	nt_kernel_probe(&kernel);
	/* an iterator attaches to a type of the kernel's own */
	err = kernel.btf ? load_once(skel, settings, kernel.btf, open, true) : -ENODATA;
	if (err && err != -ENODATA && err != -EPERM && err != -ENOMEM)
		err = load_once(skel, settings, kernel.btf, open, false);
	nt_kernel_free(&kernel);
	return err;
}

int nt_by_iterator_open(struct nt_by_iterator *by, const struct nt_settings *settings, bool open)
{
	int err;

	memset(by, 0, sizeof(*by));
	by->netns = settings->netns;
	by->places.own = -1;
	err = open ? 0 : nt_places_open(&by->places);
	if (!err)
		err = load(&by->skel, settings, open);
	if (err)
		return err;
	by->sockets = bpf_program__attach_iter(
		open ? by->skel->progs.dump_held_open : by->skel->progs.dump_held, NULL);
	if (!by->sockets || open)
		return by->sockets ? 0 : -errno;
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

/* Reads on until until_ns, or a moment longer. Returns 1: there is more, 0: that was all, or
 * -errno. */
static int take_until(struct nt_by_iterator *by, uint64_t until_ns, nt_sampled_take *take,
		      void *context)
{
	const struct nt_sampled *sampled;
	ssize_t n;

	do {
		n = nt_iterator_next(&by->reader, (const void **)&sampled);
		for (ssize_t i = 0; i < n; i++)
			if (sampled[i].end.sk)
				take(context, &sampled[i]);
	} while (n > 0 && nt_now_ns() < until_ns);
	return n > 0 ? 1 : n;
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
	return err ? err : take_until(by, UINT64_MAX, take, context);
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

int nt_by_iterator_look_open(struct nt_by_iterator *by, uint64_t until_ns, nt_sampled_take *take,
			     void *context)
{
	int err = 0;

	if (!by->reader.under_way) {
		by->skel->bss->owners_look++;
		err = nt_iterator_begin(&by->reader, by->sockets, sizeof(struct nt_sampled));
	}
	return err ? err : take_until(by, until_ns, take, context);
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
