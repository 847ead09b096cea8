/* SPDX-License-Identifier: GPL-2.0 */
/*
 * libbpf's bpf_core_read.h for the host: the structures of bpf/vmlinux_min.h are laid out as they are
 * declared there, so a field is where the compiler puts it, and a read of NULL gives 0.
 */
#ifndef __BPF_CORE_READ_H__
#define __BPF_CORE_READ_H__

#define bpf_core_read(to, size, from) host_read(to, size, from)

/* A flavour (name___suffix) stands for a kernel with other fields; struct host says which it has. */
#define bpf_core_field_exists(field)                                            \
	(!__builtin_strcmp(#field, "tp->tcp_usec_ts")      ? host.tcp_usec_ts    \
	 : !__builtin_strcmp(#field, "icsk->icsk_timeout") ? host.icsk_timeout   \
	 : __builtin_strcmp(#field, "sk->tcp_retransmit_timer"))
#define bpf_core_field_offset(type, field)         offsetof(type, field)
#define bpf_core_enum_value_exists(type, value)    (0)

struct inet_connection_sock___timeout;
struct tcp_sock___usec;

/* Where a flavour's only field lies from the structure's begin. */
#define host_flavour(from)                                                          \
	_Generic((from), struct inet_connection_sock___timeout *: host.icsk_timeout, \
		 struct tcp_sock___usec *: host.tcp_usec_ts, default: 0)
/* A bit field has no address: the structure is looked at where it may be. */
#define host_seen(from)                                                                          \
	((typeof(from))((uintptr_t)(from) + host_flavour(from) +                                 \
			((uintptr_t)(from) >= host.guarded && (uintptr_t)(from) < host.guarded_end \
				 ? host.view                                                     \
				 : 0)))
#define host_step(from, field)                                                     \
	({                                                                         \
		__auto_type __from = (from);                                       \
		if (host.on_read)                                                  \
			host.on_read();                                            \
		host_readable(__from) ? host_seen(__from)->field : 0; \
	})
#define host_steps1(from, a)       host_step(from, a)
#define host_steps2(from, a, b)    host_step(host_steps1(from, a), b)
#define host_steps3(from, a, b, c) host_step(host_steps2(from, a, b), c)
#define host_pick(_1, _2, _3, name, ...) name
#define BPF_CORE_READ(from, ...) \
	host_pick(__VA_ARGS__, host_steps3, host_steps2, host_steps1)(from, __VA_ARGS__)
#define BPF_CORE_READ_INTO(to, from, field)                                        \
	({                                                                         \
		__auto_type __from = (from);                                       \
		host_readable(__from) ? host_read(to, sizeof(*(to)), &__from->field) \
				      : host_read(to, sizeof(*(to)), NULL);        \
	})
#define BPF_CORE_READ_STR_INTO(to, from, a, b) \
	({                                                                       \
		__auto_type __last = host_step(from, a);                         \
		host_read(to, sizeof(*(to)), host_readable(__last) ? __last->b : NULL); \
	})
#define BPF_CORE_READ_BITFIELD(from, field)        host_step(from, field)
#define BPF_CORE_READ_BITFIELD_PROBED(from, field) host_step(from, field)

#endif /* __BPF_CORE_READ_H__ */
