// SPDX-License-Identifier: GPL-2.0
#include "cmd/commands.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <bpf/btf.h>
#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "attach/kernel.h"
#include "fix/keep.h"
#include "output/json.h"

static const enum nt_hooks families[] = {NT_HOOKS_FUNCTION, NT_HOOKS_KPROBE, NT_HOOKS_TRACEPOINT};
#define N_FAMILIES (sizeof(families) / sizeof(families[0]))

static void print_table(struct nt_kernel *kernel)
{
	printf("%-10s %-24s %-10s %-9s %s\n", "FAMILY", "HOOK", "KIND", "OFFERED",
	       "LOST WITHOUT IT");
	for (size_t f = 0; f < N_FAMILIES; f++) {
		for (size_t i = 0; i < nt_n_hooks; i++) {
			const struct nt_hook *hook = &nt_hooks[i];

			if (!(hook->families & NT_FAMILY(families[f])))
				continue;
			printf("%-10s %-24s %-10s %-9s %s%s\n", nt_family_name(families[f]),
			       hook->target, nt_attach_name(hook->how),
			       nt_kernel_hook(kernel, hook) ? "no" : "yes", hook->part,
			       hook->required ? " (required)" : "");
		}
	}
	printf("\ntcp_nagle_check is inlined into tcp_write_xmit on every kernel known; its decision is "
	       "taken\nagain, exactly, when tcp_write_xmit returns.\n");
}

static void print_kept(void *context, const struct nt_kept *kept)
{
	printf("kept        ");
	nt_fix_print_kept(stdout, kept);
}

static void print_text(const struct nt_settings *settings, struct nt_kernel *kernel,
		       enum nt_hooks chosen)
{
	char reason[160];
	int err;

	printf("kernel      %s %s\n", kernel->uname.release, kernel->uname.machine);
	printf("BTF         %s\n", kernel->btf     ? "yes (/sys/kernel/btf/vmlinux)"
				   : settings->btf ? "no; that of --btf will do"
						   : "no; --btf FILE gives it");
	printf("lockdown    %s\n", kernel->lockdown[0] ? kernel->lockdown : "not known");
	for (size_t f = 0; f < N_FAMILIES; f++) {
		err = nt_kernel_family(kernel, families[f]);
		if (err)
			nt_kernel_explain(kernel, err, reason, sizeof(reason));
		else
			snprintf(reason, sizeof(reason), "%s", nt_kernel_cost(families[f]));
		printf("%-11s %s%s%s\n", nt_family_name(families[f]), err ? "no: " : "yes, costs ",
		       reason, families[f] == chosen ? "  <- would be used" : "");
	}
	err = nt_fix_each_kept(print_kept, NULL);
	if (err < 0)
		printf("kept        not known: %s\n",
		       err == -EPERM ? "it takes CAP_NET_ADMIN and CAP_SYS_ADMIN" : strerror(-err));
	printf("\nCosts are instructions more than untraced: docs/performance.md.\n\n");
	print_table(kernel);
}

static struct json_object *hook_object(struct nt_kernel *kernel, const struct nt_hook *hook,
				       enum nt_hooks family)
{
	struct json_object *o = json_object_new_object();
	char status[160];
	int err = nt_kernel_hook(kernel, hook);

	json_object_object_add(o, "family", json_object_new_string(nt_family_name(family)));
	json_object_object_add(o, "hook", json_object_new_string(hook->target));
	json_object_object_add(o, "kind", json_object_new_string(nt_attach_name(hook->how)));
	json_object_object_add(o, "offered", json_object_new_boolean(!err));
	json_object_object_add(o, "required", json_object_new_boolean(hook->required));
	json_object_object_add(o, "part", json_object_new_string(hook->part));
	if (err) {
		nt_kernel_explain(kernel, err, status, sizeof(status));
		json_object_object_add(o, "reason", json_object_new_string(status));
	}
	return o;
}

static void add_kept(void *list, const struct nt_kept *kept)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "option", json_object_new_string(kept->option));
	nt_json_foreign(o, "cgroup", kept->cgroup, PATH_MAX);
	json_object_object_add(o, "pinned", json_object_new_boolean(kept->pinned));
	json_object_object_add(o, "connections", json_object_new_int64(kept->connections));
	if (kept->limit_us)
		json_object_object_add(o, "limit_us", json_object_new_int64(kept->limit_us));
	json_object_array_add(list, o);
}

static void print_json(const struct nt_settings *settings, struct nt_kernel *kernel,
		       enum nt_hooks chosen)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct json_object *costs = json_object_new_object(), *kept = json_object_new_array();

	json_object_object_add(o, "type", json_object_new_string("check"));
	json_object_object_add(o, "kernel", json_object_new_string(kernel->uname.release));
	json_object_object_add(o, "btf", json_object_new_boolean(kernel->btf != NULL));
	if (kernel->lockdown[0])
		json_object_object_add(o, "lockdown", json_object_new_string(kernel->lockdown));
	json_object_object_add(o, "hooks", json_object_new_string(nt_family_name(chosen)));
	for (size_t f = 0; f < N_FAMILIES; f++)
		json_object_object_add(costs, nt_family_name(families[f]),
				       json_object_new_string(nt_kernel_cost(families[f])));
	json_object_object_add(o, "costs", costs);
	for (size_t f = 0; f < N_FAMILIES; f++)
		for (size_t i = 0; i < nt_n_hooks; i++)
			if (nt_hooks[i].families & NT_FAMILY(families[f]))
				json_object_array_add(
					list, hook_object(kernel, &nt_hooks[i], families[f]));
	json_object_object_add(o, "table", list);
	if (nt_fix_each_kept(add_kept, kept) >= 0)
		json_object_object_add(o, "kept", kept);
	else
		json_object_put(kept);
	nt_json_write(stdout, o);
}

static void (*const print[])(const struct nt_settings *settings, struct nt_kernel *kernel,
			     enum nt_hooks chosen) = {
	[NT_OUTPUT_TEXT] = print_text,
	[NT_OUTPUT_JSON] = print_json,
};

/* Returns false, with a message, where libbpf finds no types in the file of --btf. */
static bool given_btf_serves(const struct nt_settings *settings)
{
	struct btf *given = settings->btf ? btf__parse(settings->btf, NULL) : NULL;

	if (settings->btf && !given)
		nt_log("--btf %s: it has no BTF; give a file with the kernel's BTF", settings->btf);
	btf__free(given);
	return given || !settings->btf;
}

enum nt_exit nt_check(const struct nt_settings *settings)
{
	struct nt_kernel kernel;
	enum nt_hooks chosen = settings->hooks;
	enum nt_exit code = NT_EXIT_OK;
	struct nt_error error;
	char reason[400];
	int err;

	nt_quiet_libbpf(settings->verbose);
	if (!given_btf_serves(settings))
		return NT_EXIT_KERNEL;
	if (!nt_permission_check(&error))
		return nt_error_log(&error);
	nt_kernel_probe(&kernel);
	if (chosen == NT_HOOKS_AUTO)
		chosen = nt_kernel_choose(&kernel);
	err = chosen == NT_HOOKS_AUTO ? -EOPNOTSUPP : nt_kernel_family(&kernel, chosen);
	if (!kernel.btf && !settings->btf)
		err = -ENODATA;
	print[settings->output](settings, &kernel, err ? NT_HOOKS_AUTO : chosen);
	if (err) {
		nt_kernel_explain(&kernel, err, reason, sizeof(reason));
		code = err == -NT_E_PARANOID ? NT_EXIT_PERMISSION : NT_EXIT_KERNEL;
		nt_log("%s: %s%s", code == NT_EXIT_KERNEL ? "this kernel cannot" : "not permitted",
		       reason, err == -ENODATA ? "; --btf FILE gives the BTF of this kernel" : "");
	}
	nt_kernel_free(&kernel);
	if (nt_streams_written(nt_flush(stdout)))
		code = NT_EXIT_FAILED;
	return code;
}
