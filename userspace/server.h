/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's unix stream socket: readers, their lines, and what waits to be sent to them. What a
 * slow, silent or garbage-sending reader costs, it costs that reader only.
 */
#ifndef NT_SERVER_H
#define NT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "request.h"

#define NT_MAX_READERS 64

struct event_base;
struct nt_server;
struct nt_reader;

/* Answers one request by nt_reader_send(). */
typedef void nt_answer(void *context, struct nt_reader *reader, const struct nt_request *request);

struct nt_server_counts {
	unsigned int readers;   /* connected now */
	unsigned int streaming; /* of them */
	uint64_t requests;
	uint64_t refused; /* lines that were no request */
	uint64_t dropped; /* readers sent away: too many, too slow, too silent, no request */
	uint64_t skipped; /* records that a slow reader did not get */
};

/*
 * Binds and listens at path, mode 0660, of the group gid ((gid_t)-1: the process's own). Makes the
 * directory if only its last part is missing, and takes the place of a socket that nobody serves.
 * NULL with one line in err; -EACCES or -EPERM in *cause if that is why.
 */
struct nt_server *nt_server_open(struct event_base *base, const char *path, gid_t gid,
				 nt_answer *answer, void *context, int *cause, char *err,
				 size_t err_size);

/* Sends everybody away and removes the socket. */
void nt_server_close(struct nt_server *server);

/* Sends one or more whole lines. */
void nt_reader_send(struct nt_reader *reader, const char *lines, size_t length);

/* From now on the reader gets every stall, in this format. */
void nt_reader_stream(struct nt_reader *reader, enum nt_format format);

/* Does anybody wait for stalls in this format, and has room for one now? Those without are told
 * later how many they did not get. */
bool nt_server_wants(struct nt_server *server, enum nt_format format);

/* Sends a line to all of those for whom nt_server_wants() was true. */
void nt_server_stream(struct nt_server *server, enum nt_format format, const char *line,
		      size_t length);

void nt_server_counts(const struct nt_server *server, struct nt_server_counts *counts);

#endif /* NT_SERVER_H */
