// SPDX-License-Identifier: GPL-2.0
#include "capture/origin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/text.h"

/* The default of --min: a shorter wait is no stall on any host. */
#define MIN_STALL_NS 1000000ULL

static void read_boot_id(char boot_id[37])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!file)
		return;
	if (!fgets(boot_id, 37, file))
		boot_id[0] = '\0';
	fclose(file);
	boot_id[strcspn(boot_id, "\n")] = '\0';
}

int nt_origin_read(struct nt_origin *origin, const struct nt_settings *settings)
{
	struct utsname name;

	memset(origin, 0, sizeof(*origin));
	if (settings->host)
		snprintf(origin->host, sizeof(origin->host), "%s", settings->host);
	else if (!uname(&name))
		snprintf(origin->host, sizeof(origin->host), "%s", name.nodename);
	read_boot_id(origin->boot_id);
	origin->filtered = nt_chooses_processes(settings) || nt_chooses_connections(settings);
	origin->all_late_acks = !origin->filtered && settings->min_ns <= MIN_STALL_NS;
	origin->all_holds = origin->all_late_acks && settings->all_holds;
	memcpy(origin->next_key, settings->fleet_keys[1], sizeof(origin->next_key));
	origin->next_key_ns = settings->next_fleet_key_ns;
	if (settings->has_fleet_key)
		memcpy(origin->key, settings->fleet_keys[0], sizeof(origin->key));
	else if (getrandom(origin->key, sizeof(origin->key), 0) != sizeof(origin->key))
		return -errno;
	return 0;
}

static const uint8_t *key_at(const struct nt_origin *origin, uint64_t mono_ns)
{
	if (origin->next_key_ns && nt_time_of_day_ns(mono_ns) >= origin->next_key_ns)
		return origin->next_key;
	return origin->key;
}

uint64_t nt_origin_ack_id(const struct nt_origin *origin, const struct nt_ack_numbers *numbers,
			  uint64_t mono_ns)
{
	const uint8_t bytes[] = {
		numbers->ack, numbers->ack >> 8, numbers->ack >> 16, numbers->ack >> 24,
		numbers->seq, numbers->seq >> 8, numbers->seq >> 16, numbers->seq >> 24,
	};

	return nt_siphash(key_at(origin, mono_ns), bytes, sizeof(bytes));
}

/* No ACK has the empty message, so that this is never an ACK's ID by construction. */
uint64_t nt_origin_key_id(const struct nt_origin *origin)
{
	return nt_siphash(key_at(origin, nt_now_ns()), "", 0);
}

bool nt_origin_key_changed(const struct nt_origin *origin, uint64_t span_ns)
{
	uint64_t now_ns = nt_now_ns();

	return key_at(origin, now_ns) != key_at(origin, now_ns - span_ns);
}
