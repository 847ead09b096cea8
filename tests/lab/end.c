// SPDX-License-Identifier: GPL-2.0
/* The life of one end's process: it does what the parent orders and answers each order. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lab.h"

const char *end_name(const struct lab_options *opt, enum lab_side side)
{
	if (side == LAB_CLIENT)
		return opt->client_name ? opt->client_name : "lab-client";
	return opt->server_name ? opt->server_name : "lab-server";
}

int end_be_child(pid_t parent, const char *name)
{
	prctl(PR_SET_NAME, name);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return fail(-errno, "cannot set the parent-death signal: %s", strerror(errno));
	/* The parent may have died before the request was made. */
	return getppid() == parent ? 0 : -ESRCH;
}

int end_add_pid(struct lab_end *end, pid_t pid)
{
	if (end->nr_pids == LAB_MAX_PIDS)
		return -E2BIG;
	end->pids[end->nr_pids++] = pid;
	return 0;
}

static int take_order(struct lab_end *end, enum lab_order_kind kind, struct lab_order *order)
{
	/* The parent is gone or ends the run: it has said why. */
	if (recv(end->channel, order, sizeof(*order), MSG_WAITALL) != sizeof(*order))
		return -EPIPE;
	return order->kind == kind ? 0 : fail(-EPROTO, "order %u out of turn", order->kind);
}

static int be_born(struct lab_end *end)
{
	int err = end->plan->opt.over_veth ? net_own_namespace() : 0;

	return err ? err : say_step(end, "born");
}

static int step_network(struct lab_end *end)
{
	struct lab_order order;
	int err = take_order(end, ORDER_NETWORK, &order);

	if (!err)
		err = end->ops->network(end, (int)order.peer_pid);
	if (!err)
		err = handover_prepare(end);
	if (!err && !end->is_worker)
		err = say_up(end);
	return err;
}

static int by_port(const void *a, const void *b)
{
	return (int)((const struct lab_conn *)a)->port - (int)((const struct lab_conn *)b)->port;
}

/*
 * Both ends number their connections alike, by the client's port: the last packets of two
 * handshakes may overtake each other where the client changes its CPU, so the order of accept()
 * tells nothing.
 */
void conns_order(struct lab_end *end)
{
	qsort(end->conn, end->nr_conns, sizeof(end->conn[0]), by_port);
	for (uint32_t i = 0; i < end->nr_conns; i++)
		end->conn[i].index = i;
}

static int step_connect(struct lab_end *end)
{
	struct lab_order order;
	int err = 0;

	if (!end->is_worker) {
		err = take_order(end, ORDER_CONNECT, &order);
		if (!err)
			err = end->ops->open(end, (uint16_t)order.port);
	}
	if (!err)
		err = handover_do(end);
	return err ? err : say_connected(end);
}

static bool time_is_up(const struct lab_end *end)
{
	return end->until_ns && now_ns() > end->until_ns;
}

static void play(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	bool client = c->end->side == LAB_CLIENT;

	for (c->round = 1; c->round <= opt->rounds && !c->over; c->round++) {
		turn_next(c);
		c->err = c->end->ops->round(c);
		if (c->err || c->over)
			break;
		c->played = c->round;
		if (client && time_is_up(c->end))
			break;
		if (client && c->round < opt->rounds)
			sleep_ns(c->turn.interval_ns);
	}
	if (c->fd < 0)
		return;
	/* The other end may wait for what will never come. */
	if (c->err)
		shutdown(c->fd, SHUT_RDWR);
	else if (client && opt->play_s)
		shutdown(c->fd, SHUT_WR);
}

static void *play_thread(void *arg)
{
	play(arg);
	return NULL;
}

static int play_all(struct lab_end *end)
{
	pthread_t thread[LAB_MAX_CONNECTIONS];
	uint32_t started = 1;
	int err = 0;

	while (started < end->nr_conns && !err) {
		err = -pthread_create(&thread[started], NULL, play_thread, &end->conn[started]);
		started += !err;
	}
	if (!err)
		err = say_step(end, "playing");
	if (err)
		return fail(err, "cannot start connection %u: %s", started, strerror(-err));
	play(&end->conn[0]);
	for (uint32_t i = 1; i < end->nr_conns; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

static int check_played(struct lab_end *end)
{
	int err = 0;

	for (uint32_t i = 0; i < end->nr_conns; i++) {
		struct lab_conn *c = &end->conn[i];

		if (c->err)
			err = fail(c->err, "%s, connection %u, round %u: %s", end->ops->name, i,
				   c->round,
				   c->err == -ENODATA ? "the peer closed" : strerror(-c->err));
	}
	return err;
}

static int step_play(struct lab_end *end)
{
	struct lab_order order;
	int err = take_order(end, ORDER_PLAY, &order);

	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = conn_prepare(&end->conn[i], order.mss);
	if (err)
		return fail(err, "%s: cannot prepare the rounds: %s", end->ops->name,
			    strerror(-err));
	if (end->plan->opt.play_s)
		end->until_ns = now_ns() + end->plan->opt.play_s * LAB_SEC;
	err = counters_read(&end->before);
	if (!err)
		err = play_all(end);
	if (!err)
		err = check_played(end);
	return err ? err : say_step(end, "played");
}

static int step_finish(struct lab_end *end)
{
	struct lab_order order;
	int err = take_order(end, ORDER_FINISH, &order);

	return err ? err : say_report(end);
}

static int run_steps(struct lab_end *end)
{
	static int (*const steps[])(struct lab_end * end) = {
		be_born, step_network, step_connect, step_play, step_finish,
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(steps) && !err; i++)
		err = steps[i](end);
	return err;
}

int end_run(const struct lab_plan *plan, enum lab_side side, int channel)
{
	struct lab_end *end = calloc(1, sizeof(*end));
	int err;

	if (!end)
		return -ENOMEM;
	end->plan = plan;
	end->side = side;
	end->ops = side == LAB_CLIENT ? &client_ops : &server_ops;
	end->channel = channel;
	end->listener = end->passage = -1;
	end->nr_conns = (uint32_t)plan->opt.connections;
	end_add_pid(end, getpid());
	for (uint32_t i = 0; i < end->nr_conns; i++) {
		end->conn[i].end = end;
		end->conn[i].index = i;
		end->conn[i].fd = end->conn[i].epoll = -1;
		end->conn[i].log.on = plan->opt.events;
	}
	err = run_steps(end);
	for (uint32_t i = 0; i < end->nr_conns; i++)
		conn_release(&end->conn[i]);
	free(end);
	return err;
}
