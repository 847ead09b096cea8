/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A TCP in user space that acknowledges late, as other systems do: it stands in for hosts whose
 * delayed-ACK timer is 100 or 200 ms. It serves one connection on a link that loses nothing: it
 * never sends anything twice. Times are of CLOCK_MONOTONIC, in ns; errors are -errno.
 */
#ifndef NAGLE_LAB_LATE_PEER_H
#define NAGLE_LAB_LATE_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct late_peer_config {
	const char *link; /* whose kernel has no address there, so that it resets nothing */
	const char *local, *remote;
	uint8_t local_mac[6], remote_mac[6];
	int family; /* 4 or 6 */
	uint16_t port;
	uint16_t mss;       /* announced */
	uint64_t delack_ns; /* how long an ACK is put off; every second full segment's is not */
};

struct late_peer;

int late_peer_new(const struct late_peer_config *config, struct late_peer **out);

/* Waits for the handshake of a client, whose port it tells. */
int late_peer_accept(struct late_peer *p, uint64_t timeout_ns, uint16_t *remote_port);

/* Blocks for a byte at least; 0: the client has no more to say. */
ssize_t late_peer_read(struct late_peer *p, void *buf, size_t size);

/* Returns when all is sent, as far as the client's window lets it. */
int late_peer_write(struct late_peer *p, const void *buf, size_t size);

/* Goes on receiving and acknowledging for so long. */
int late_peer_sleep(struct late_peer *p, uint64_t ns);

void late_peer_free(struct late_peer *p);

#endif
