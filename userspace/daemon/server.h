/* SPDX-License-Identifier: GPL-2.0 */
/* The daemon's unix stream socket: its readers, their lines, and the data that waits for them. A
 * slow, silent or garbage-sending reader harms only itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"
#include "protocol/request.h"

/*
 * Limits of simultaneous connections. One user may have a quarter of them, so that nobody keeps
 * others out. All users together leave an eighth for root and the daemon's own user, who have no
 * share.
 */
#define NT_MAX_READERS       64
#define NT_USER_READERS      16
#define NT_ALL_USERS_READERS 56

struct nt_loop;
struct nt_server;
struct nt_reader;

/* Answers one request by nt_reader_send(). */
typedef void nt_answer(void *context, struct nt_reader *reader, const struct nt_request *request);

/* A request or connection was refused for lack of room, for one of these reasons. */
enum nt_refusal {
	NT_REFUSED_USER_READERS, /* a connection: the user has its share */
	NT_REFUSED_ALL_READERS,  /* a connection: all are taken */
	NT_REFUSED_USER_WAITING, /* a request: too much waits for that user */
	NT_REFUSED_ALL_WAITING,  /* a request: too much waits for all */
	NT_REFUSED_DESCRIPTORS,  /* no descriptor was left; connections wait meanwhile */
	NT_REFUSALS,
};

struct nt_server_counts {
	unsigned int readers;   /* connected now */
	unsigned int streaming; /* of them */
	uint64_t requests;
	uint64_t refused; /* lines that were no request, and requests without room */
	uint64_t dropped; /* readers sent away: too many, too slow, too silent, or no request */
	uint64_t skipped; /* stalls that a slow reader did not get */
	uint64_t refusals[NT_REFUSALS];
};

/*
 * Binds and listens at path, with mode 0660 and the group gid ((gid_t)-1: the process's own).
 * Creates the directory if only its last part is missing, and replaces a socket that nobody serves.
 * Returns NULL when it has filled *error.
 */
struct nt_server *nt_server_open(const char *path, gid_t gid, nt_answer *answer, void *context,
				 struct nt_error *error);

/*
 * Serves the readers, and has the loop make its turns, until one of the loop's calls stops it.
 * Readers and the loop have their turns one after the other. Returns 0 or -errno.
 */
int nt_server_run(struct nt_server *server, struct nt_loop *loop);

/* Disconnects all readers and removes the socket. */
void nt_server_close(struct nt_server *server);

/* Sends one or more whole lines. */
void nt_reader_send(struct nt_reader *reader, const char *lines, size_t length);

/* Sends the reader every stall in this format from now on. */
void nt_reader_stream(struct nt_reader *reader, enum nt_format format);

/* Does a reader stream in this format? */
bool nt_server_streams(const struct nt_server *server, enum nt_format format);

/* Says whether a reader waits for a stall, or else another record, in this format and has room for
 * one now. Readers without room learn later how many they missed. */
bool nt_server_wants(struct nt_server *server, enum nt_format format, bool is_stall);

/* Reports to readers that have room again what they missed; for once a second, since who was over
 * the limit of a second may hear of nothing more. */
void nt_server_report_skipped(struct nt_server *server);

/* Sends a line to each reader that had room in nt_server_wants(). */
void nt_server_stream(struct nt_server *server, enum nt_format format, const char *line,
		      size_t length);

void nt_server_counts(const struct nt_server *server, struct nt_server_counts *counts);
