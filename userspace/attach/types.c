// SPDX-License-Identifier: GPL-2.0
#include "attach/types.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/btf.h>

struct extract {
	const struct btf *kernel;
	struct btf *copy;
	__u32 *ids; /* by ID in the kernel: ID of the copy; 0: none yet */
	int err;    /* 0, or -errno of the first failure */
};

static __u32 extract(struct extract *x, __u32 kernel_id);

/* The types move in memory whenever one is added. */
static struct btf_type *copied(const struct extract *x, __u32 id)
{
	return (struct btf_type *)btf__type_by_id(x->copy, id);
}

/* Makes a copy refer to copies of what it refers to. */
static void extract_parts(struct extract *x, __u32 id)
{
	struct btf_type *type = copied(x, id);
	__u32 to;

	if (btf_is_composite(type)) {
		for (unsigned int i = 0; i < btf_vlen(copied(x, id)); i++) {
			to = extract(x, btf_members(copied(x, id))[i].type);
			btf_members(copied(x, id))[i].type = to;
		}
	} else if (btf_is_array(type)) {
		to = extract(x, btf_array(type)->type);
		btf_array(copied(x, id))->type = to;
		to = extract(x, btf_array(copied(x, id))->index_type);
		btf_array(copied(x, id))->index_type = to;
	} else if (btf_is_ptr(type)) {
		type->type = 0;
	} else if (btf_is_mod(type) || btf_is_typedef(type)) {
		to = extract(x, type->type);
		copied(x, id)->type = to;
	}
}

/* Returns the ID of the copy, which it makes if there is none. */
static __u32 extract(struct extract *x, __u32 kernel_id)
{
	int id;

	if (!kernel_id || x->ids[kernel_id] || x->err)
		return x->ids[kernel_id];
	id = btf__add_type(x->copy, x->kernel, btf__type_by_id(x->kernel, kernel_id));
	if (id < 0) {
		x->err = id;
		return 0;
	}
	x->ids[kernel_id] = id;
	extract_parts(x, id);
	return id;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *name_of(const struct btf *btf, __u32 id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);

	return btf_is_composite(type) || btf_is_any_enum(type)
		       ? btf__name_by_offset(btf, type->name_off)
		       : "";
}

static void free_names(char **names, size_t n)
{
	for (size_t i = 0; names && i < n; i++)
		free(names[i]);
	free(names);
}

/*
 * Returns the names of the object's types, sorted; NULL for lack of memory. A flavour,
 * inet_sock___old, stands for inet_sock.
 */
static char **names_of(const struct btf *object, size_t *n)
{
	__u32 types = btf__type_cnt(object);
	char **names = calloc(types, sizeof(*names));

	*n = 0;
	for (__u32 id = 1; names && id < types; id++) {
		const char *name = name_of(object, id), *flavour = strstr(name, "___");

		if (!*name)
			continue;
		names[*n] = strndup(name, flavour ? (size_t)(flavour - name) : strlen(name));
		if (!names[(*n)++]) {
			free_names(names, *n);
			return NULL;
		}
	}
	if (names)
		qsort(names, *n, sizeof(*names), compare_names);
	return names;
}

static void extract_named(struct extract *x, char **names, size_t n)
{
	__u32 types = btf__type_cnt(x->kernel);

	for (__u32 id = 1; id < types; id++) {
		const char *name = name_of(x->kernel, id);

		if (*name && bsearch(&name, names, n, sizeof(*names), compare_names))
			extract(x, id);
	}
}

static int write_types(int file, const struct btf *copy)
{
	__u32 size;
	const char *data = btf__raw_data(copy, &size);

	if (!data)
		return -ENOMEM;
	return write(file, data, size) == (ssize_t)size ? 0 : -EIO;
}

int nt_types_write(int file, const struct btf *kernel, const struct btf *object)
{
	struct extract x = {.kernel = kernel, .copy = btf__new_empty()};
	size_t n;
	char **names = names_of(object, &n);

	x.ids = calloc(btf__type_cnt(kernel), sizeof(*x.ids));
	if (!x.copy || !names || !x.ids)
		x.err = -ENOMEM;
	else
		extract_named(&x, names, n);
	if (!x.err)
		x.err = write_types(file, x.copy);
	free_names(names, n);
	free(x.ids);
	btf__free(x.copy);
	return x.err;
}
