// SPDX-License-Identifier: GPL-2.0
/*
 * nagle-lab: both ends of a TCP experiment with a known truth.
 *
 * main.c, conduct.c, child.c   the parent: starts both ends, conducts the run, prints the lines
 * options.c, scenarios.c        the tables of options and of scenarios
 * end.c, client.c, server.c     the life of one end's process, and what differs between the two
 * handover.c, ending.c          another process plays the client's rounds; how the last round ends
 * turn.c                        what one round consists of; mix: rolled by dice
 * message.c                     sending and reading one message; its writes by several threads
 * call.c                        the system calls that carry the bytes
 * socket.c, net.c, shape.c      sockets and their options; namespaces; delay, loss and rate
 * measure.c, report.c           what is measured; how it is said
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
/* Not <netinet/tcp.h>: glibc's struct tcp_info ends before tcpi_bytes_sent. */
#include <linux/tcp.h>

#define LAB_MAX_PARTS        16
#define LAB_MAX_WRITES       1024 /* of a message; UIO_MAXIOV */
#define LAB_MAX_PART_BYTES   (1024 * 1024)
#define LAB_MAX_ROUNDS       100000
#define LAB_MAX_TOTAL_ROUNDS 200000
#define LAB_MAX_MIX_ROUNDS   3000 /* of one connection */
#define LAB_MAX_CONNECTIONS  64
#define LAB_MAX_THREADS      64
#define LAB_MAX_PIDS         4
#define LAB_UNSET            UINT64_MAX
#define LAB_USEC             UINT64_C(1000)
#define LAB_MSEC             (1000 * LAB_USEC)
#define LAB_SEC              (1000 * LAB_MSEC)

/* Long enough to be sure the data is held, well below the 40 ms of a delayed ACK. */
#define LAB_HELD_NS   (10 * LAB_MSEC)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum lab_side {
	LAB_CLIENT,
	LAB_SERVER,
	LAB_SIDES,
};

/* How the parts of a message become system calls. */
enum lab_how {
	HOW_UNSET = 0,
	HOW_WRITES,
	HOW_COALESCE,
	HOW_WRITEV,
	HOW_SENDMSG,
	HOW_MSG_MORE,
};

/* Which system call carries the bytes of one write. */
enum lab_by {
	BY_WRITE = 0,
	BY_SENDFILE,
	BY_SPLICE,
	BY_ZEROCOPY,
	BY_IO_URING,
};

enum lab_cork {
	CORK_NONE = 0,
	CORK_FORGOTTEN,
	CORK_BOTH, /* forgotten at both ends */
	CORK_ROUND,
};

/* The client does this 10 ms after the last write of the last round. */
enum lab_ending {
	ENDING_NONE = 0,
	ENDING_CLOSE,
	ENDING_SHUTDOWN,
	ENDING_RESET,
	ENDING_KILL,
};

enum lab_handover {
	HANDOVER_NONE = 0,
	HANDOVER_FORK,
	HANDOVER_PASS_FD,
};

/* A part has bytes + segments * MSS, or what --size says. */
struct lab_part {
	uint32_t bytes;
	uint32_t segments;
	bool sized;
};

struct lab_message {
	uint32_t nr;
	struct lab_part part[LAB_MAX_PARTS];
};

struct lab_scenario {
	const char *name;
	const char *about;
	/* These options come with the name, as on a command line. */
	const char *with;
	uint64_t rounds;
	uint64_t interval_ns;
	uint64_t pause_ns;
	uint64_t delay_reply_ns;
	uint64_t size;
	enum lab_cork cork;
	/* The first part of each message is a length, which --agreed-length leaves out. */
	bool length_first;
	/* Every round is rolled by dice: turn.c. */
	bool mixed;
	struct lab_message request;
	struct lab_message reply;
};

/* Numbers are uint64_t so that one table can fill them; LAB_UNSET: the scenario decides. */
struct lab_options {
	uint64_t rounds, connections, threads, size, parts, reply_bytes, port, client_port, seed;
	uint64_t interval_ns, pause_ns, delay_reply_ns, linger_ns, timeout_ns, play_s;
	uint64_t answer_after, read_bytes, read_pause_ns, read_delay_ns, rcvbuf, pace;
	uint64_t rtt_ns, jitter_ns, loss, rate, rto_min_ns;
	uint64_t family, over_veth, how, by, handover, ending;
	const char *cc, *client_name, *server_name;
	struct lab_message sizes, reply_sizes;
	bool nodelay, nodelay_server, nodelay_while_held;
	bool quickack, quickack_off, quickack_route;
	bool no_reply, one_part, agreed_length, cork, epoll, keepalive, reconnect, changing;
	bool ktls, fast_open, mptcp;
	bool v4_mapped, any_address, own_netns, late_connect, wait, events;
};

/* The scenario with the options laid over it. It does not change once both ends are forked. */
struct lab_plan {
	const struct lab_scenario *scenario;
	struct lab_options opt;
	enum lab_cork cork;
	bool forget_more;
	struct lab_message request;
	struct lab_message reply;
};

enum lab_call {
	CALL_WRITE,
	CALL_WRITEV,
	CALL_SENDMSG,
	CALL_SEND,
	CALL_SENDFILE,
	CALL_SPLICE,
	CALL_ZEROCOPY,
	CALL_IO_URING,
	CALL_READ,
	CALL_SETSOCKOPT,
	CALL_SHUTDOWN,
	CALL_CLOSE,
};

/* The sizes of one message's writes. */
struct lab_sizes {
	uint32_t nr;
	uint32_t bytes;
	uint32_t part[LAB_MAX_WRITES];
};

/* One round consists of this; both ends come to the same. */
struct lab_turn {
	struct lab_sizes message[LAB_SIDES];
	enum lab_how how;
	enum lab_cork cork;
	uint64_t pause_ns;
	uint64_t delay_reply_ns;
	uint64_t interval_ns;
	bool nodelay[LAB_SIDES];
	bool quickack;
};

struct lab_event {
	enum lab_call call;
	uint32_t connection;
	uint32_t round;
	int32_t tid;
	int32_t flags;
	int32_t option;
	int32_t value;
	uint16_t port;    /* the client's, where each round has its own */
	const char *text; /* the value, if it is no number */
	int64_t bytes;
	int64_t result;
	/* This direction of the connection had carried so many bytes before. */
	uint64_t offset;
	uint64_t start_ns;
	uint64_t end_ns;
};

struct lab_log {
	bool on;
	uint32_t nr;
	uint32_t room;
	struct lab_event *event;
};

struct lab_round {
	uint64_t start_ns;
	uint64_t end_ns;
	bool closed;
};

/* One system call that sends: iov lies inside one buffer, part after part. */
struct lab_send {
	enum lab_call call;
	const struct iovec *iov;
	int nr;
	int flags;
};

struct lab_caller;

struct lab_conn {
	struct lab_end *end;
	uint32_t index;
	int fd;
	uint32_t round;
	uint32_t played;
	int err;
	bool nodelay_now;
	bool corked_now;
	bool over; /* the peer has begun no further round */
	uint16_t port;
	pid_t victim;
	struct lab_round *rounds;
	struct lab_log log;
	uint32_t writes; /* of --threads: whose turn it is */
	struct lab_caller *caller;
	struct lab_turn turn;
	int epoll;
	uint64_t sent;
	uint64_t received;
	/* Each message takes its letters from the begin of this. */
	char *payload;
	char *inbox;
	size_t room;
	struct tcp_info info;
};

#define LAB_COUNTERS 6

struct lab_counters {
	uint64_t value[LAB_COUNTERS];
};

struct lab_end;
struct json_object;

/* The two ends differ in this. */
struct lab_side_ops {
	const char *name;
	int (*network)(struct lab_end *end, int peer_pid);
	int (*open)(struct lab_end *end, uint16_t port);
	int (*round)(struct lab_conn *c);
};

struct lab_end {
	const struct lab_plan *plan;
	const struct lab_side_ops *ops;
	enum lab_side side;
	int channel;
	int listener;
	uint16_t port;
	/* The process that passes descriptors and the one that gets them hold one end of it each.
	 */
	int passage;
	bool is_worker;
	uint64_t until_ns;
	pid_t pids[LAB_MAX_PIDS];
	uint32_t nr_pids;
	struct lab_counters before;
	uint32_t nr_conns;
	struct lab_conn conn[LAB_MAX_CONNECTIONS];
};

/* The parent gives an end these orders; the end answers each with one line of JSON. */
enum lab_order_kind {
	ORDER_NETWORK = 1,
	ORDER_CONNECT,
	ORDER_PLAY,
	ORDER_FINISH,
};

struct lab_order {
	uint32_t kind;
	uint32_t peer_pid;
	uint32_t port;
	uint32_t mss;
};

/* options.c: returns 0, 1 after --help or --list, or -EINVAL after a line on stderr. */
int options_parse(int argc, char **argv, struct lab_plan *plan);

/* scenarios.c */
const struct lab_scenario *scenario_find(const char *name);
void scenario_list(void);
int plan_resolve(struct lab_plan *plan);

/* turn.c */
void turn_first(struct lab_conn *c, uint32_t mss);
void turn_next(struct lab_conn *c);
size_t turn_room(const struct lab_conn *c);

/* end.c, client.c, server.c, handover.c */
extern const struct lab_side_ops client_ops;
extern const struct lab_side_ops server_ops;
int end_run(const struct lab_plan *plan, enum lab_side side, int channel);
void conns_order(struct lab_end *end);
const char *end_name(const struct lab_options *opt, enum lab_side side);
int end_be_child(pid_t parent, const char *name);
int end_add_pid(struct lab_end *end, pid_t pid);
int handover_prepare(struct lab_end *end);
int handover_do(struct lab_end *end);

/* ending.c: ends the client's last round while data is held. */
bool still_held(const struct lab_conn *c);
int ending_prepare(struct lab_conn *c);
int ending_do(struct lab_conn *c, struct lab_round *r);

/* message.c */
int conn_prepare(struct lab_conn *c, uint32_t mss);
void conn_release(struct lab_conn *c);
int message_send(struct lab_conn *c, enum lab_side from);
int message_read(struct lab_conn *c, enum lab_side from);

/* socket.c: callers of conn_* report its errors; the other functions report theirs. */
int conn_setsockopt(struct lab_conn *c, int option, int value);
int conn_setsockopt_cc(struct lab_conn *c, const char *name);
int conn_options(struct lab_conn *c, bool nodelay);
int conn_close(struct lab_conn *c);
int socket_new(const struct lab_plan *plan);
int socket_before_listen(int fd, const struct lab_options *opt);
int socket_before_connect(struct lab_conn *c);
int socket_ktls(int fd);

/* call.c: makes and logs one system call, waits on EAGAIN, and returns its result or -errno. */
int caller_start(struct lab_conn *c);
void caller_stop(struct lab_conn *c);
size_t iov_bytes(const struct iovec *iov, int nr);
ssize_t send_call(struct lab_conn *c, const struct lab_send *s);
ssize_t read_call(struct lab_conn *c, void *buf, size_t bytes);

/* net.c */
int net_own_namespace(void);
int net_loopback_up(const struct lab_plan *plan);
int net_veth_create(int peer_pid);
int net_veth_to_middle(enum lab_side side, int middle_pid);
int net_middle(const struct lab_options *opt);
int net_veth_running(enum lab_side side);
int net_veth_up(const struct lab_plan *plan, enum lab_side side);
int net_namespace_inode(uint64_t *inode);
int net_listen(struct lab_end *end);
int net_connect(struct lab_conn *c, uint16_t port);
int net_ip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int net_sysctl(const char *name, const char *value);
int net_names(struct lab_conn *c, char *local, char *peer, size_t size);
uint16_t net_port(int fd, bool peer);

/* shape.c */
int shape_link(const struct lab_options *opt, const char *link);
bool shape_has_middle(const struct lab_options *opt);
int shape_middle(const struct lab_options *opt, const char *const *port);

/* measure.c */
uint64_t now_ns(void);
void sleep_ns(uint64_t ns);
int counters_read(struct lab_counters *c);
const char *counters_name(uint32_t i);
int conn_take_info(struct lab_conn *c);
uint64_t log_start(const struct lab_log *log);
void log_add(struct lab_conn *c, const struct lab_event *e);

/* report.c: says every line of an end to the parent. */
int say_up(struct lab_end *end);
int say_connected(struct lab_end *end);
int say_step(struct lab_end *end, const char *step);
int say_report(struct lab_end *end);

/* For fail(): this machine cannot play that; the exit code is 3. */
#define LAB_CANNOT (-ENOPROTOOPT)

/* Prints "nagle-lab: …" and returns err, so that a failure is told where it is known. */
int fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
