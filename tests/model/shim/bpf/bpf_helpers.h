/* SPDX-License-Identifier: GPL-2.0 */
/*
 * libbpf's bpf_helpers.h for the host: maps and helpers as ordinary C, so that the programs of bpf/
 * run in a process, under sanitizers. Each helper does what its page in bpf-helpers(7) says.
 */
#ifndef __BPF_HELPERS__
#define __BPF_HELPERS__

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/bpf.h>
#include <uthash.h>

#undef __always_inline
#define __always_inline   inline __attribute__((always_inline))
#define __noinline        __attribute__((noinline, unused))
#define SEC(name)         __attribute__((unused))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define barrier()         asm volatile("" ::: "memory")
#define barrier_var(var)  asm volatile("" : "+r"(var))

/* ---- the world that the helpers see; who drives the programs sets it ---- */

struct host {
	uint64_t now_ns;
	uint64_t jiffies;
	uint64_t pid_tgid; /* of current; 0: a softirq over the idle task */
	void *task;        /* struct task_struct of current */
	void (*on_record)(const void *record);
	void (*on_event)(const void *event);
	void (*on_clock)(void); /* another CPU may act while a program asks for the time */
	bool under_cgroup;      /* current is in the cgroup of -c */
	uint64_t lookups;       /* in maps: what a program costs */
	void (*on_read)(void);  /* before the first probed read of a program */
	/* what sockets lie in, and how far from it a view is that only host_read() may use */
	uintptr_t guarded, guarded_end;
	ptrdiff_t view;
	bool untrusted; /* no pointer of the program that runs is one that the verifier trusts */
	/* fields that some kernels have, and where; 0: this one has none */
	size_t icsk_timeout, tcp_usec_ts;
};

static struct host host;

static __always_inline uint64_t host_clock(void)
{
	if (host.on_clock)
		host.on_clock();
	return host.now_ns;
}

/* An address that a read would fault at: NULL, and a member of what NULL points to. */
static __always_inline bool host_readable(const volatile void *address)
{
	return (uintptr_t)address >= 4096;
}

static __always_inline long host_read(void *to, size_t size, const void *from)
{
	if (host.on_read)
		host.on_read();
	if (!host_readable(from)) {
		memset(to, 0, size);
		return -EFAULT;
	}
	if ((uintptr_t)from >= host.guarded && (uintptr_t)from < host.guarded_end)
		from = (const char *)from + host.view;
	memcpy(to, from, size);
	return 0;
}

#define bpf_probe_read_kernel(to, size, from) host_read(to, size, from)
/* the model's kernel names no function */
#define bpf_snprintf(to, size, format, data, bytes) ((void)(to), (void)(format), (void)(data), 0L)
#define bpf_probe_read_kernel_str(to, size, from)   host_read(to, size, from)
#define bpf_probe_read_user(to, size, from)   host_read(to, size, from)
#define bpf_ktime_get_ns()                    host_clock()
#define bpf_jiffies64()                       (host.jiffies)
#define bpf_get_current_pid_tgid()            (host.pid_tgid)
#define bpf_get_smp_processor_id()            0
#define bpf_get_current_task()                ((uintptr_t)host.task)
#define bpf_get_current_task_btf()            (host.task)
#define bpf_get_current_cgroup_id()           ((uint64_t)1)
#define bpf_current_task_under_cgroup(map, i) (host.under_cgroup)
#define bpf_task_pt_regs(task)                ((long)(task) & 0)
#define bpf_get_stackid(ctx, map, flags)      ((void)(ctx), 7)
#define bpf_rdonly_cast(object, type) ((void *)(object))
#define bpf_skc_to_tcp_sock(sk) \
	(host.untrusted ? abort(), NULL : (struct tcp_sock *)(sk))
#define bpf_seq_write(seq, data, size)        ((void)(data))
#define bpf_loop(rounds, function, context, flags) ((void)(function))

/* ---- maps ---- */

#define HOST_KEY_BYTES 24

struct host_entry {
	UT_hash_handle hh; /* in the order in which they came */
	uint8_t key[HOST_KEY_BYTES];
	uint64_t value[];
};

struct host_map {
	struct host_map *next; /* of all */
	struct host_entry *entries;
	uint32_t key_size, value_size, max_entries, type;
	uint64_t refused; /* entries for which there was no room */
	bool refuses;     /* there is no memory for a new entry */
};

static struct host_map *host_maps;

static __attribute__((unused)) struct host_map *host_map_make(uint32_t type, uint32_t key_size,
							      uint32_t value_size,
							      uint32_t max_entries)
{
	struct host_map *map = calloc(1, sizeof(*map));

	map->type = type;
	map->key_size = key_size;
	map->value_size = value_size;
	map->max_entries = max_entries;
	map->next = host_maps;
	host_maps = map;
	return map;
}

/* The map's definition is all pointers that nobody follows: the first of them holds the map. */
#define host_sized(map)                                                              \
	({                                                                           \
		struct host_map *__host;                                             \
		memcpy(&__host, (map), sizeof(__host));                              \
		if (!__host) {                                                       \
			__host = host_map_make(sizeof(*(map)->type) / sizeof(int),   \
					       sizeof(*(map)->key),                  \
					       sizeof(*(map)->value),                \
					       sizeof(*(map)->max_entries) /         \
						       sizeof(int));                 \
			memcpy((map), &__host, sizeof(__host));                      \
		}                                                                    \
		__host;                                                              \
	})

static __attribute__((unused)) struct host_entry *host_find(struct host_map *map, const void *key)
{
	struct host_entry *e;

	HASH_FIND(hh, map->entries, key, map->key_size, e);
	return e;
}

/* As the kernel does, it frees an entry only when no program can have it in its hands any more. */
static __attribute__((unused)) void host_drop(struct host_map *map, struct host_entry *e)
{
	static void *later[64];
	static uint32_t i;

	HASH_DEL(map->entries, e);
	free(later[i % 64]);
	later[i++ % 64] = e;
}

/* A new entry for a key that has none; NULL: there is no room. */
static __attribute__((unused)) void *host_add(struct host_map *map, const void *key)
{
	bool full = HASH_COUNT(map->entries) >= map->max_entries;
	struct host_entry *e;

	if (map->refuses || (full && map->type != BPF_MAP_TYPE_LRU_HASH)) {
		map->refused++;
		return NULL;
	}
	if (full)
		host_drop(map, map->entries);
	e = calloc(1, sizeof(*e) + map->value_size);
	memcpy(e->key, key, map->key_size);
	HASH_ADD(hh, map->entries, key, map->key_size, e);
	return e->value;
}

static __attribute__((unused)) void *host_lookup(struct host_map *map, const void *key)
{
	struct host_entry *e = host_find(map, key);

	host.lookups++;
	if (e)
		return e->value;
	if (map->type == BPF_MAP_TYPE_PERCPU_ARRAY || map->type == BPF_MAP_TYPE_ARRAY)
		return host_add(map, key);
	return NULL;
}

static __attribute__((unused)) long host_update(struct host_map *map, const void *key,
						const void *value, uint64_t flags)
{
	struct host_entry *e = host_find(map, key);
	void *place = e ? e->value : NULL;

	if (place && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!place && flags == BPF_EXIST)
		return -ENOENT;
	if (!place)
		place = host_add(map, key);
	if (!place)
		return map->refuses ? -ENOMEM : -E2BIG;
	memcpy(place, value, map->value_size);
	return 0;
}

static __attribute__((unused)) long host_delete(struct host_map *map, const void *key)
{
	struct host_entry *e = host_find(map, key);

	if (!e)
		return -ENOENT;
	host_drop(map, e);
	return 0;
}

#define bpf_map_lookup_elem(map, key)               host_lookup(host_sized(map), key)
#define bpf_map_update_elem(map, key, value, flags) host_update(host_sized(map), key, value, flags)
#define bpf_map_delete_elem(map, key)               host_delete(host_sized(map), key)

/* ---- ring buffers: a record is read as it is submitted ---- */

static struct {
	uint8_t bytes[1024];
	bool full; /* nobody reads: reservations fail */
	uint64_t refused;
} host_ring;

#define bpf_ringbuf_query(map, flags) 0 /* there is room for all: bpf/share.h */
#define bpf_ringbuf_reserve(map, size, flags) \
	(host_ring.full ? host_ring.refused++, NULL : (void *)host_ring.bytes)
#define bpf_ringbuf_submit(record, flags)          host.on_record(record)
#define bpf_ringbuf_output(map, data, size, flags) \
	({                                         \
		if (host.on_event)                 \
			host.on_event(data);       \
		0;                                 \
	})

#endif /* __BPF_HELPERS__ */
