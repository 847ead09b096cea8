// SPDX-License-Identifier: GPL-2.0
/* Programs that do nothing: what a hook costs by itself. empty.c attaches one to each of ours. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tp_btf")
int empty_raw_tp(void *ctx)
{
	return 0;
}

SEC("fentry")
int empty_fentry(void *ctx)
{
	return 0;
}

SEC("fexit")
int empty_fexit(void *ctx)
{
	return 0;
}

SEC("kprobe")
int empty_kprobe(void *ctx)
{
	return 0;
}

SEC("kretprobe")
int empty_kretprobe(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
