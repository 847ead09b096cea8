// SPDX-License-Identifier: GPL-2.0
#include "sample/object.h"

#include <errno.h>

#include <bpf/libbpf.h>
#include "bpf/nagletrace.h"
#include "attach/kernel.h"
#include "attach/loading.h"
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

int nt_sample_load(struct sample_bpf **skel, const struct nt_settings *settings, bool open)
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
