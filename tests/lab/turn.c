// SPDX-License-Identifier: GPL-2.0
/*
 * What one round consists of. Mostly every round is what the scenario and the options say; in a mix
 * it is rolled by dice that both ends throw alike: the seed, the connection and the round.
 */
#include "lab.h"

static uint64_t whole(const struct lab_part *part, const struct lab_plan *plan, uint32_t mss)
{
	return part->sized ? plan->opt.size : part->bytes + (uint64_t)part->segments * mss;
}

static void add_write(struct lab_sizes *sizes, uint64_t bytes)
{
	if (!bytes || sizes->nr == LAB_MAX_WRITES)
		return;
	sizes->part[sizes->nr++] = (uint32_t)bytes;
	sizes->bytes += (uint32_t)bytes;
}

static void lay_out(struct lab_sizes *sizes, const struct lab_message *m,
		    const struct lab_plan *plan, uint32_t mss)
{
	*sizes = (struct lab_sizes){};
	for (uint32_t i = 0; i < m->nr; i++) {
		uint64_t bytes = whole(&m->part[i], plan, mss);
		uint64_t writes = m->part[i].sized && plan->opt.parts ? plan->opt.parts : 1;

		for (uint64_t w = 0; w < writes; w++)
			add_write(sizes, (w + 1) * bytes / writes - w * bytes / writes);
	}
}

void turn_first(struct lab_conn *c, uint32_t mss)
{
	const struct lab_plan *plan = c->end->plan;
	const struct lab_options *opt = &plan->opt;
	struct lab_turn *t = &c->turn;

	lay_out(&t->message[LAB_CLIENT], &plan->request, plan, mss);
	lay_out(&t->message[LAB_SERVER], &plan->reply, plan, mss);
	t->how = (enum lab_how)opt->how;
	t->cork = plan->cork;
	t->pause_ns = opt->pause_ns;
	t->delay_reply_ns = opt->delay_reply_ns;
	t->interval_ns = opt->interval_ns;
	t->nodelay[LAB_CLIENT] = opt->nodelay;
	t->nodelay[LAB_SERVER] = opt->nodelay || opt->nodelay_server;
	t->quickack = opt->quickack;
}

/* splitmix64 */
static uint64_t throw_dice(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Returns a number from low to high, both included. */
static uint64_t between(uint64_t *dice, uint64_t low, uint64_t high)
{
	return low + throw_dice(dice) % (high - low + 1);
}

static bool percent(uint64_t *dice, uint32_t of_hundred)
{
	return throw_dice(dice) % 100 < of_hundred;
}

static uint64_t roll_bytes(uint64_t *dice)
{
	static const uint32_t highest[] = {20, 20, 400, 400, 1400, 1400, 4000, 40000};

	return between(dice, 1, highest[throw_dice(dice) % ARRAY_SIZE(highest)]);
}

static void roll_message(uint64_t *dice, struct lab_sizes *sizes, uint64_t parts)
{
	sizes->nr = sizes->bytes = 0;
	while (parts--)
		add_write(sizes, roll_bytes(dice));
}

/* Returns mostly nothing, else a moment, else enough to meet a delayed ACK somewhere in its time.
 */
static uint64_t roll_wait(uint64_t *dice)
{
	if (percent(dice, 65))
		return 0;
	return between(dice, 0, percent(dice, 60) ? 3 * LAB_MSEC : 70 * LAB_MSEC);
}

static enum lab_how roll_how(uint64_t *dice)
{
	static const enum lab_how hows[] = {
		HOW_WRITES,   HOW_WRITES, HOW_WRITES,  HOW_WRITES,   HOW_WRITES,
		HOW_COALESCE, HOW_WRITEV, HOW_SENDMSG, HOW_MSG_MORE,
	};

	return hows[throw_dice(dice) % ARRAY_SIZE(hows)];
}

static enum lab_cork roll_cork(uint64_t *dice)
{
	if (percent(dice, 6))
		return CORK_ROUND;
	return percent(dice, 1) ? CORK_FORGOTTEN : CORK_NONE;
}

/* Chooses what the next round consists of; c->round says which it is. */
void turn_next(struct lab_conn *c)
{
	const struct lab_plan *plan = c->end->plan;
	struct lab_turn *t = &c->turn;
	uint64_t dice = plan->opt.seed << 40 ^ (uint64_t)c->index << 32 ^ c->round;

	if (!plan->scenario->mixed)
		return;
	throw_dice(&dice);
	t->how = roll_how(&dice);
	t->cork = roll_cork(&dice);
	if (t->cork)
		t->how = HOW_WRITES;
	roll_message(&dice, &t->message[LAB_CLIENT], between(&dice, 1, 4));
	roll_message(&dice, &t->message[LAB_SERVER], percent(&dice, 15) ? 0 : between(&dice, 1, 3));
	t->pause_ns = roll_wait(&dice);
	t->delay_reply_ns = roll_wait(&dice);
	t->interval_ns = roll_wait(&dice);
	t->nodelay[LAB_CLIENT] = percent(&dice, 15);
	t->nodelay[LAB_SERVER] = percent(&dice, 15);
	t->quickack = percent(&dice, 10);
}

/* Returns the most bytes that any message of this connection has. */
size_t turn_room(const struct lab_conn *c)
{
	const struct lab_sizes *m = c->turn.message;
	size_t room = m[LAB_CLIENT].bytes > m[LAB_SERVER].bytes ? m[LAB_CLIENT].bytes
								: m[LAB_SERVER].bytes;
	const size_t mixed = 4 * 40000;

	return c->end->plan->scenario->mixed && room < mixed ? mixed : room;
}
