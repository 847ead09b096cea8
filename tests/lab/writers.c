// SPDX-License-Identifier: GPL-2.0
/* Several threads make the writes of one connection in turn: each hands the next call on. */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "lab.h"

struct lab_writer {
	struct lab_conn *c;
	pthread_t thread;
	sem_t go;
	sem_t done;
	const struct lab_send *send;
	ssize_t result;
};

/* The thread that plays the connection is the first writer; these are the others. */
struct lab_writers {
	uint32_t nr;
	uint32_t next;
	struct lab_writer writer[];
};

static void *writer_main(void *arg)
{
	struct lab_writer *w = arg;

	for (;;) {
		while (sem_wait(&w->go))
			;
		if (!w->send)
			return NULL;
		w->result = send_call(w->c, w->send);
		sem_post(&w->done);
	}
}

int writers_start(struct lab_conn *c)
{
	uint32_t nr = (uint32_t)c->end->plan->opt.threads - 1;
	struct lab_writers *all = calloc(1, sizeof(*all) + nr * sizeof(all->writer[0]));

	if (!all)
		return -ENOMEM;
	c->writers = all;
	for (uint32_t i = 0; i < nr; i++) {
		struct lab_writer *w = &all->writer[i];
		int err;

		w->c = c;
		sem_init(&w->go, 0, 0);
		sem_init(&w->done, 0, 0);
		err = pthread_create(&w->thread, NULL, writer_main, w);
		if (err)
			return -err;
		all->nr++;
	}
	return 0;
}

void writers_stop(struct lab_conn *c)
{
	struct lab_writers *all = c->writers;

	if (!all)
		return;
	for (uint32_t i = 0; i < all->nr; i++) {
		all->writer[i].send = NULL;
		sem_post(&all->writer[i].go);
		pthread_join(all->writer[i].thread, NULL);
	}
	free(all);
	c->writers = NULL;
}

ssize_t writers_call(struct lab_conn *c, const struct lab_send *s)
{
	struct lab_writers *all = c->writers;
	uint32_t turn = all->next++ % (all->nr + 1);
	struct lab_writer *w;

	if (!turn)
		return send_call(c, s);
	w = &all->writer[turn - 1];
	w->send = s;
	sem_post(&w->go);
	while (sem_wait(&w->done))
		;
	return w->result;
}
