// SPDX-License-Identifier: GPL-2.0
#include "names/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

/*
 * Returns how many bytes of a name we send: whole characters. Subtracts them from what is left; if
 * there is no room, the name is left out.
 */
static uint16_t length_of(const char *name, size_t *left, bool *full)
{
	size_t n;

	if (!name)
		return NT_NAMES_NONE;
	n = strnlen(name, NT_NAME_BYTES + 1);
	if (n > NT_NAME_BYTES)
		n = nt_whole_characters(name, NT_NAME_BYTES);
	if (n > *left) {
		*full = true;
		return NT_NAMES_NONE;
	}
	*left -= n;
	return n;
}

static uint8_t *put(uint8_t *at, const void *from, size_t length)
{
	memcpy(at, from, length);
	return at + length;
}

size_t nt_names_encode(const struct nt_names_reply *head, const struct nt_frame *frames, size_t n,
		       uint8_t *bytes)
{
	uint8_t *at = bytes + sizeof(*head);
	struct nt_names_reply h = *head;
	size_t left = NT_NAMES_BYTES;
	bool full = false;

	h.n = n < NT_STACK_DEPTH ? n : NT_STACK_DEPTH;
	for (size_t i = 0; i < h.n; i++) {
		struct nt_names_frame f = {.ip = frames[i].ip, .offset = frames[i].offset};

		f.module = length_of(frames[i].module, &left, &full);
		f.symbol = length_of(frames[i].symbol, &left, &full);
		at = put(at, &f, sizeof(f));
		if (f.module != NT_NAMES_NONE)
			at = put(at, frames[i].module, f.module);
		if (f.symbol != NT_NAMES_NONE)
			at = put(at, frames[i].symbol, f.symbol);
	}
	if (full && !h.why)
		h.why = NT_UNNAMED_LIMIT;
	put(bytes, &h, sizeof(h));
	return at - bytes;
}

/* The bytes that we have not decoded yet. */
struct rest {
	const uint8_t *at;
	size_t length;
};

static int take(struct rest *rest, void *to, size_t length)
{
	if (rest->length < length)
		return -EBADMSG;
	memcpy(to, rest->at, length);
	rest->at += length;
	rest->length -= length;
	return 0;
}

static int take_name(struct rest *rest, uint16_t length, char **name)
{
	if (length == NT_NAMES_NONE)
		return 0;
	if (length > NT_NAME_BYTES || length > rest->length || memchr(rest->at, '\0', length))
		return -EBADMSG;
	*name = strndup((const char *)rest->at, length);
	if (!*name)
		return -ENOMEM;
	rest->at += length;
	rest->length -= length;
	return 0;
}

static int take_frame(struct rest *rest, struct nt_frame *frame)
{
	struct nt_names_frame f;
	int err = take(rest, &f, sizeof(f));

	if (err)
		return err;
	frame->ip = f.ip;
	frame->offset = f.offset;
	err = take_name(rest, f.module, &frame->module);
	return err ? err : take_name(rest, f.symbol, &frame->symbol);
}

int nt_names_decode(const uint8_t *bytes, size_t length, struct nt_names_reply *head,
		    struct nt_frame *frames)
{
	struct rest rest = {.at = bytes, .length = length};
	int err = take(&rest, head, sizeof(*head));

	if (err)
		return err;
	if (head->n > NT_STACK_DEPTH || head->why >= NT_UNNAMED_REASONS)
		return -EBADMSG;
	memset(frames, 0, head->n * sizeof(*frames));
	for (size_t i = 0; !err && i < head->n; i++)
		err = take_frame(&rest, &frames[i]);
	if (!err && rest.length)
		err = -EBADMSG;
	if (err)
		nt_frames_free(frames, head->n);
	return err;
}
