// SPDX-License-Identifier: GPL-2.0
#include "late_peer.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define INBOX        (256 * 1024) /* the window it announces */
#define WINDOW_SCALE 3
#define FRAME_MAX    (128 * 1024) /* the client's kernel leaves segmenting to the device */
#define TS_BYTES     12           /* NOP NOP TS, RFC 7323 appendix A */

enum {
	FLAG_FIN = 1,
	FLAG_SYN = 2,
	FLAG_RST = 4,
	FLAG_PSH = 8,
	FLAG_ACK = 16,
};

/* The TCP header as it stands on the wire. */
struct header {
	uint16_t source, destination;
	uint32_t seq, ack;
	uint8_t offset; /* upper half: words */
	uint8_t flags;
	uint16_t window, checksum, urgent;
};

struct segment {
	const struct header *tcp;
	const uint8_t *options;
	size_t option_bytes;
	const uint8_t *data;
	size_t bytes;
};

struct late_peer {
	struct late_peer_config config;
	int fd;
	uint8_t local[16], remote[16];
	size_t address_bytes;
	uint16_t remote_port; /* network order; 0: nobody has come yet */
	uint32_t snd_nxt, snd_una, snd_wnd, rcv_nxt;
	uint32_t mss; /* of what we send */
	uint8_t snd_scale;
	bool timestamps, established, finished, reset;
	uint32_t ts_recent;
	uint64_t ack_due_ns; /* 0: no ACK is owed */
	uint32_t unacked;
	uint8_t *frame;
	uint8_t inbox[INBOX];
	size_t in_bytes;
};

static uint32_t sum_words(const void *data, size_t bytes, uint32_t sum)
{
	const uint8_t *at = data;

	for (; bytes > 1; bytes -= 2, at += 2)
		sum += (uint32_t)(at[0] << 8 | at[1]);
	return bytes ? sum + (uint32_t)(at[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static size_t put_network(const struct late_peer *p, uint8_t *at, size_t tcp_bytes)
{
	struct ip6_hdr six = {.ip6_flow = htonl(6U << 28),
			      .ip6_plen = htons((uint16_t)tcp_bytes),
			      .ip6_nxt = IPPROTO_TCP,
			      .ip6_hlim = 64};
	struct iphdr four = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP};

	if (p->config.family == 6) {
		memcpy(&six.ip6_src, p->local, 16);
		memcpy(&six.ip6_dst, p->remote, 16);
		memcpy(at, &six, sizeof(six));
		return sizeof(six);
	}
	four.tot_len = htons((uint16_t)(sizeof(four) + tcp_bytes));
	memcpy(&four.saddr, p->local, 4);
	memcpy(&four.daddr, p->remote, 4);
	four.check = fold(sum_words(&four, sizeof(four), 0));
	memcpy(at, &four, sizeof(four));
	return sizeof(four);
}

static size_t put_options(const struct late_peer *p, uint8_t *at, uint8_t flags)
{
	uint32_t now_ms = htonl((uint32_t)(now_ns() / LAB_MSEC)), echo = htonl(p->ts_recent);
	size_t bytes = 0;

	if (flags & FLAG_SYN) {
		const uint8_t mss[] = {2, 4, (uint8_t)(p->config.mss >> 8), (uint8_t)p->config.mss};
		const uint8_t scale[] = {1, 3, 3, WINDOW_SCALE};

		memcpy(at, mss, sizeof(mss));
		memcpy(at + sizeof(mss), scale, sizeof(scale));
		bytes = sizeof(mss) + sizeof(scale);
	}
	if (p->timestamps) {
		memcpy(at + bytes, (const uint8_t[]){1, 1, 8, 10}, 4);
		memcpy(at + bytes + 4, &now_ms, 4);
		memcpy(at + bytes + 8, &echo, 4);
		bytes += TS_BYTES;
	}
	return bytes;
}

/* Whatever is sent acknowledges all that has come. */
static int send_segment(struct late_peer *p, uint8_t flags, const void *data, size_t bytes)
{
	uint32_t window = (uint32_t)(INBOX - p->in_bytes);
	uint8_t frame[2048], *ip = frame + ETH_HLEN, *tcp, *options;
	struct header h = {.source = htons(p->config.port),
			   .destination = p->remote_port,
			   .seq = htonl(p->snd_nxt),
			   .ack = htonl(p->rcv_nxt),
			   .flags = flags | FLAG_ACK};
	size_t option_bytes, tcp_bytes;
	uint32_t sum;

	tcp = ip + (p->config.family == 6 ? sizeof(struct ip6_hdr) : sizeof(struct iphdr));
	options = tcp + sizeof(h);
	option_bytes = put_options(p, options, flags);
	tcp_bytes = sizeof(h) + option_bytes + bytes;
	h.offset = (uint8_t)((sizeof(h) + option_bytes) / 4 << 4);
	h.window = htons((uint16_t)(flags & FLAG_SYN ? 65535 : window >> WINDOW_SCALE));
	memcpy(tcp, &h, sizeof(h));
	if (bytes)
		memcpy(options + option_bytes, data, bytes);
	sum = sum_words(p->local, p->address_bytes, IPPROTO_TCP + (uint32_t)tcp_bytes);
	sum = sum_words(p->remote, p->address_bytes, sum);
	h.checksum = fold(sum_words(tcp, tcp_bytes, sum));
	memcpy(tcp, &h, sizeof(h));
	put_network(p, ip, tcp_bytes);
	memcpy(frame, p->config.remote_mac, ETH_ALEN);
	memcpy(frame + ETH_ALEN, p->config.local_mac, ETH_ALEN);
	frame[12] = p->config.family == 6 ? 0x86 : 0x08;
	frame[13] = p->config.family == 6 ? 0xdd : 0x00;
	p->ack_due_ns = 0;
	p->unacked = 0;
	p->snd_nxt += (uint32_t)bytes + !!(flags & (FLAG_SYN | FLAG_FIN));
	return write(p->fd, frame, (size_t)(tcp - frame) + tcp_bytes) < 0 ? -errno : 0;
}

static const uint8_t *find_option(const struct segment *s, uint8_t kind)
{
	size_t i = 0;

	while (i < s->option_bytes && s->options[i]) {
		if (s->options[i] == 1) {
			i++;
			continue;
		}
		if (i + 1 >= s->option_bytes || s->options[i + 1] < 2 ||
		    i + s->options[i + 1] > s->option_bytes)
			return NULL;
		if (s->options[i] == kind)
			return s->options + i;
		i += s->options[i + 1];
	}
	return NULL;
}

static void take_timestamp(struct late_peer *p, const struct segment *s)
{
	const uint8_t *ts = find_option(s, 8);

	/* As RFC 7323 has it: of the segment that the next ACK answers first. */
	if (!ts || (int32_t)(ntohl(s->tcp->seq) - p->rcv_nxt) > 0 || p->ack_due_ns)
		return;
	memcpy(&p->ts_recent, ts + 2, 4);
	p->ts_recent = ntohl(p->ts_recent);
}

static int take_syn(struct late_peer *p, const struct segment *s)
{
	const uint8_t *mss = find_option(s, 2), *scale = find_option(s, 3);

	p->remote_port = s->tcp->source;
	p->rcv_nxt = ntohl(s->tcp->seq);
	p->timestamps = find_option(s, 8);
	take_timestamp(p, s);
	p->rcv_nxt++;
	p->mss = mss ? (uint32_t)(mss[2] << 8 | mss[3]) : 536;
	p->mss = (p->mss < p->config.mss ? p->mss : p->config.mss) - (p->timestamps ? TS_BYTES : 0);
	p->snd_scale = scale ? scale[2] : 0;
	p->snd_nxt = p->snd_una = (uint32_t)now_ns();
	return send_segment(p, FLAG_SYN, NULL, 0);
}

static int take_data(struct late_peer *p, const struct segment *s)
{
	bool expected = ntohl(s->tcp->seq) == p->rcv_nxt && s->bytes <= INBOX - p->in_bytes;
	bool fin = s->tcp->flags & FLAG_FIN;

	/* Probes of a closed window or a kept-alive connection bear no data, but an old number. */
	if (!s->bytes && !fin && (int32_t)(ntohl(s->tcp->seq) - p->rcv_nxt) >= 0)
		return 0;
	if (!expected)
		return send_segment(p, 0, NULL, 0);
	memcpy(p->inbox + p->in_bytes, s->data, s->bytes);
	p->in_bytes += s->bytes;
	p->rcv_nxt += (uint32_t)s->bytes + fin;
	p->unacked += (uint32_t)s->bytes;
	p->finished = fin;
	if (fin || p->unacked >= 2 * p->mss)
		return send_segment(p, 0, NULL, 0);
	if (!p->ack_due_ns)
		p->ack_due_ns = now_ns() + p->config.delack_ns;
	return 0;
}

static int take_segment(struct late_peer *p, const struct segment *s)
{
	uint8_t flags = s->tcp->flags;

	if (s->tcp->destination != htons(p->config.port))
		return 0;
	if (!p->remote_port)
		return flags & FLAG_SYN ? take_syn(p, s) : 0;
	if (s->tcp->source != p->remote_port || flags & FLAG_SYN)
		return 0;
	if (flags & FLAG_RST) {
		p->reset = true;
		return 0;
	}
	take_timestamp(p, s);
	if (flags & FLAG_ACK) {
		p->established = true;
		p->snd_una = ntohl(s->tcp->ack);
		p->snd_wnd = (uint32_t)ntohs(s->tcp->window) << p->snd_scale;
	}
	return take_data(p, s);
}

/* What is no TCP of this family, or cut short, is left alone. */
static bool parse(const struct late_peer *p, size_t bytes, struct segment *s)
{
	const uint8_t *ip = p->frame + ETH_HLEN;
	size_t head, header, total;

	if (bytes < ETH_HLEN + 40)
		return false;
	if (p->config.family == 6) {
		if (((const struct ip6_hdr *)ip)->ip6_nxt != IPPROTO_TCP)
			return false;
		head = sizeof(struct ip6_hdr);
		total = head + ntohs(((const struct ip6_hdr *)ip)->ip6_plen);
	} else {
		if (((const struct iphdr *)ip)->protocol != IPPROTO_TCP)
			return false;
		head = ((const struct iphdr *)ip)->ihl * 4U;
		total = ntohs(((const struct iphdr *)ip)->tot_len);
	}
	s->tcp = (const struct header *)(ip + head);
	header = (s->tcp->offset >> 4) * 4U;
	if (total > bytes - ETH_HLEN || head + header > total)
		return false;
	s->options = ip + head + sizeof(*s->tcp);
	s->option_bytes = header - sizeof(*s->tcp);
	s->data = ip + head + header;
	s->bytes = total - head - header;
	return true;
}

/* Takes one frame, or sends the ACK whose time has come; -ETIMEDOUT when until_ns has. */
static int step(struct late_peer *p, uint64_t until_ns)
{
	uint64_t next = p->ack_due_ns && p->ack_due_ns < until_ns ? p->ack_due_ns : until_ns;
	uint64_t now = now_ns(), left = next > now ? next - now : 0;
	struct timespec wait = {(time_t)(left / LAB_SEC), (long)(left % LAB_SEC)};
	struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
	struct segment s;
	ssize_t n;

	if (ppoll(&poll_fd, 1, &wait, NULL) < 0)
		return errno == EINTR ? 0 : -errno;
	if (poll_fd.revents) {
		n = read(p->fd, p->frame, FRAME_MAX);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		return parse(p, (size_t)n, &s) ? take_segment(p, &s) : 0;
	}
	now = now_ns();
	if (p->ack_due_ns && now >= p->ack_due_ns)
		return send_segment(p, 0, NULL, 0);
	return now >= until_ns ? -ETIMEDOUT : 0;
}

int late_peer_accept(struct late_peer *p, uint64_t timeout_ns, uint16_t *remote_port)
{
	uint64_t until = now_ns() + timeout_ns;
	int err = 0;

	while (!p->established && !err)
		err = step(p, until);
	*remote_port = ntohs(p->remote_port);
	return err;
}

ssize_t late_peer_read(struct late_peer *p, void *buf, size_t size)
{
	size_t n;

	while (!p->in_bytes && !p->finished && !p->reset) {
		int err = step(p, UINT64_MAX);

		if (err)
			return err;
	}
	if (!p->in_bytes)
		return p->reset ? -ECONNRESET : 0;
	n = p->in_bytes < size ? p->in_bytes : size;
	memcpy(buf, p->inbox, n);
	p->in_bytes -= n;
	memmove(p->inbox, p->inbox + n, p->in_bytes);
	return (ssize_t)n;
}

int late_peer_write(struct late_peer *p, const void *buf, size_t size)
{
	const uint8_t *at = buf;

	while (size) {
		size_t n = size < p->mss ? size : p->mss;
		int err = 0;

		while (!err && !p->reset && p->snd_nxt + n - p->snd_una > p->snd_wnd)
			err = step(p, UINT64_MAX);
		if (!err && p->reset)
			err = -ECONNRESET;
		if (!err)
			err = send_segment(p, n == size ? FLAG_PSH : 0, at, n);
		if (err)
			return err;
		at += n;
		size -= n;
	}
	return 0;
}

int late_peer_sleep(struct late_peer *p, uint64_t ns)
{
	uint64_t until = now_ns() + ns;
	int err = 0;

	while (!err && now_ns() < until)
		err = step(p, until);
	return err == -ETIMEDOUT ? 0 : err;
}

static int open_link(struct late_peer *p)
{
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(p->config.family == 6 ? ETH_P_IPV6 : ETH_P_IP),
		.sll_ifindex = (int)if_nametoindex(p->config.link),
	};

	p->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, at.sll_protocol);
	if (p->fd < 0 || !at.sll_ifindex || bind(p->fd, (struct sockaddr *)&at, sizeof(at)))
		return -errno;
	return 0;
}

int late_peer_new(const struct late_peer_config *config, struct late_peer **out)
{
	int family = config->family == 6 ? AF_INET6 : AF_INET;
	struct late_peer *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->fd = -1;
	p->config = *config;
	p->address_bytes = config->family == 6 ? 16 : 4;
	p->frame = malloc(FRAME_MAX);
	err = p->frame ? open_link(p) : -ENOMEM;
	if (!err && (inet_pton(family, config->local, p->local) != 1 ||
		     inet_pton(family, config->remote, p->remote) != 1))
		err = -EINVAL;
	if (err)
		late_peer_free(p);
	else
		*out = p;
	return err;
}

void late_peer_free(struct late_peer *p)
{
	if (!p)
		return;
	if (p->established && !p->reset)
		send_segment(p, FLAG_FIN, NULL, 0);
	if (p->fd >= 0)
		close(p->fd);
	free(p->frame);
	free(p);
}
