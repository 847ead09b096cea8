// SPDX-License-Identifier: GPL-2.0
#include "sample/object.h"

#include <errno.h>

#include <bpf/libbpf.h>
#include "bpf/nagletrace.h"
#include "attach/kernel.h"
#include "sample.skel.h"

/* direct: the programs load from sockets directly, which most verifiers allow. */
static int load_once(struct sample_bpf **loaded, const struct nt_settings *settings, bool open,
		     bool direct)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = settings->btf);
	struct sample_bpf *skel = sample_bpf__open_opts(&options);
	struct nt_config *config;
	int err;

	if (!skel)
		return -errno;
	config = (struct nt_config *)&skel->rodata->nt_config;
	config->tick_ns = nt_kernel_tick_ns();
	config->direct = direct;
	config->all_holds = settings->all_holds;
	bpf_program__set_autoload(skel->progs.dump_held, !open);
	bpf_program__set_autoload(skel->progs.dump_owners, !open);
	bpf_program__set_autoload(skel->progs.dump_held_open, open);
	err = sample_bpf__load(skel);
	/* libbpf takes a feature for missing if it could not try it for lack of memory */
	if (!err && !skel->bss)
		err = -ENOMEM;
	if (err)
		sample_bpf__destroy(skel);
	else
		*loaded = skel;
	return err;
}

int nt_sample_load(struct sample_bpf **skel, const struct nt_settings *settings, bool open)
{
	int err;

	*skel = NULL;
	err = load_once(skel, settings, open, true);
	return err && err != -EPERM && err != -ENOMEM ? load_once(skel, settings, open, false)
						      : err;
}
