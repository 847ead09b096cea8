// SPDX-License-Identifier: GPL-2.0
#include "capture/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "attach/tracer.h"
#include "base/each_process.h"
#include "base/grow.h"
#include "nagletrace.skel.h"

/* The most threads of a namespace that we try: one may have ended, or moved. */
#define TRIED 8

int nt_namespaces_open(struct nt_namespaces *namespaces, const struct nt_tracer *tracer)
{
	memset(namespaces, 0, sizeof(*namespaces));
	namespaces->tracer = tracer;
	if (!tracer->typed || !nt_process_ids_are_the_hosts())
		return -EOPNOTSUPP;
	namespaces->iterator = bpf_program__attach_iter(
		tracer->cast.function ? tracer->skel->progs.dump_namespaces
				      : tracer->skel->progs.dump_namespaces_unrolled,
		NULL);
	return namespaces->iterator ? 0 : -errno;
}

void nt_namespaces_close(struct nt_namespaces *namespaces)
{
	bpf_link__destroy(namespaces->iterator);
	free(namespaces->list);
	memset(namespaces, 0, sizeof(*namespaces));
}

static int compare(const void *a, const void *b)
{
	const struct nt_netns *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Keeps only a few threads of each namespace, which suffice. */
static void leave_few(struct nt_namespaces *ns)
{
	size_t kept = 0, of_this = 0;

	if (ns->count)
		qsort(ns->list, ns->count, sizeof(*ns->list), compare);
	for (size_t i = 0; i < ns->count; i++) {
		bool same = kept && ns->list[kept - 1].id == ns->list[i].id;

		of_this = same ? of_this + 1 : 0;
		if (of_this < TRIED)
			ns->list[kept++] = ns->list[i];
	}
	ns->count = kept;
}

/*
 * Adds a thread. A host has many more threads than namespaces, so threads that we do not need make
 * room first.
 */
static int add(struct nt_namespaces *ns, const struct nt_netns *netns)
{
	int err = 0;

	if (ns->count == ns->room && !ns->full) {
		leave_few(ns);
		if (ns->room == NT_NAMESPACES_LISTED)
			ns->full = 2 * ns->count >= ns->room;
		else if (2 * ns->count >= ns->room)
			err = nt_grow(&ns->list, &ns->room, sizeof(*ns->list));
	}
	if (!err && !ns->full)
		ns->list[ns->count++] = *netns;
	return err;
}

static int read_all(struct nt_namespaces *ns)
{
	const struct nt_netns *piece;
	ssize_t n;
	int err = 0;

	while (!err && (n = nt_iterator_next(&ns->reader, (const void **)&piece)) > 0)
		for (ssize_t i = 0; !err && i < n; i++)
			err = add(ns, &piece[i]);
	if (!err)
		err = n;
	nt_iterator_end(&ns->reader);
	leave_few(ns);
	return err;
}

/* Reads which namespaces the map has. */
static void read_counted(struct nt_namespaces *ns)
{
	int map = bpf_map__fd(ns->tracer->skel->maps.timers_seen), err;
	__u32 n = NT_NAMESPACES_COUNTED, place;
	uint64_t timers[NT_NAMESPACES_COUNTED];

	err = bpf_map_lookup_batch(map, NULL, &place, ns->counted, timers, &n, NULL);
	ns->n_counted = !err || err == -ENOENT ? n : 0; /* that says that these are all */
}

int nt_namespaces_scan(struct nt_namespaces *ns)
{
	int err;

	read_counted(ns);
	ns->tracer->skel->bss->namespaces_complete = false;
	ns->count = 0;
	ns->full = false;
	err = nt_iterator_begin(&ns->reader, ns->iterator, sizeof(*ns->list));
	if (!err)
		err = read_all(ns);
	if (err)
		ns->count = 0;
	ns->complete = !err && !ns->full && ns->tracer->skel->bss->namespaces_complete;
	return err;
}

bool nt_namespaces_parse(const char *text, uint64_t *delayed_acks)
{
	const char *names = strstr(text, "TcpExt:"), *values;
	char *end;

	if (!names || !(values = strchr(names, '\n')) || strncmp(++values, "TcpExt:", 7))
		return false;
	for (;;) {
		size_t name;

		names += strcspn(names, " \n");
		values += strcspn(values, " \n");
		if (*names != ' ' || *values != ' ')
			return false;
		name = strcspn(++names, " \n");
		values++;
		if (name != 11 || strncmp(names, "DelayedACKs", 11))
			continue;
		*delayed_acks = strtoull(values, &end, 10);
		return end != values;
	}
}

/*
 * Reads a namespace's counter through /proc, as a thread that lives in it has it there: this takes
 * no privilege.
 */
static bool read_counter(struct nt_namespaces *ns, uint32_t tid, struct nt_timers *timers)
{
	char path[48];
	size_t at = 0;
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/net/netstat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = fstat(fd, &st);
	while (!n && at < sizeof(ns->text) - 1) {
		ssize_t more = read(fd, ns->text + at, sizeof(ns->text) - 1 - at);

		if (more < 0)
			n = -1;
		if (more <= 0)
			break;
		at += more;
	}
	close(fd);
	ns->text[at] = '\0';
	timers->file = st.st_ino;
	return !n && nt_namespaces_parse(ns->text, &timers->counted);
}

static bool read_seen(const struct nt_namespaces *ns, uint64_t id, uint64_t *seen)
{
	int err = bpf_map__lookup_elem(ns->tracer->skel->maps.timers_seen, &id, sizeof(id), seen,
				       sizeof(*seen), 0);

	if (err == -ENOENT)
		*seen = 0;
	return !err || err == -ENOENT;
}

static size_t first_of(const struct nt_namespaces *ns, uint64_t id)
{
	size_t low = 0, high = ns->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ns->list[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool nt_namespaces_read(struct nt_namespaces *ns, uint64_t id, struct nt_timers *timers)
{
	if (!read_seen(ns, id, &timers->seen_before))
		return false;
	for (size_t i = first_of(ns, id); i < ns->count && ns->list[i].id == id; i++)
		if (ns->list[i].tid && read_counter(ns, ns->list[i].tid, timers))
			return read_seen(ns, id, &timers->seen);
	return false;
}

bool nt_namespaces_overflowed(const struct nt_namespaces *ns)
{
	return ns->tracer->skel->bss->timers_uncounted;
}

void nt_namespaces_forget(struct nt_namespaces *ns, uint64_t id)
{
	bpf_map__delete_elem(ns->tracer->skel->maps.timers_seen, &id, sizeof(id), 0);
}
