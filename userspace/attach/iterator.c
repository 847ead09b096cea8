// SPDX-License-Identifier: GPL-2.0
#include "attach/iterator.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

int nt_iterator_begin(struct nt_iterator *it, const struct bpf_link *link, size_t entry)
{
	nt_iterator_end(it);
	it->fd = bpf_iter_create(bpf_link__fd(link));
	if (it->fd < 0)
		return -errno;
	it->under_way = true;
	it->entry = entry;
	it->held = 0;
	return 0;
}

/*
 * Reads as read(2) does. The kernel gives up after a million steps without output, bpf_seq_read():
 * we go on then.
 */
static ssize_t read_some(struct nt_iterator *it)
{
	ssize_t n;

	do
		n = read(it->fd, it->piece + it->held, NT_PIECE(it->entry));
	while (n < 0 && (errno == EINTR || errno == EAGAIN));
	return n < 0 ? -errno : n;
}

ssize_t nt_iterator_next(struct nt_iterator *it, const void **entries)
{
	size_t used;
	ssize_t n;

	if (!it->under_way)
		return 0;
	used = it->held / it->entry * it->entry;
	/* keep the start of an entry whose rest is still to come */
	it->held -= used;
	memmove(it->piece, it->piece + used, it->held);
	do {
		n = read_some(it);
		if (n <= 0) {
			nt_iterator_end(it);
			return n;
		}
		it->held += n;
	} while (it->held < it->entry);
	*entries = it->piece;
	return it->held / it->entry;
}

void nt_iterator_end(struct nt_iterator *it)
{
	if (it->under_way)
		close(it->fd);
	it->under_way = false;
}
