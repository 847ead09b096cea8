// SPDX-License-Identifier: GPL-2.0
/*
 * This file is linked only into the static binary of `make static`. For some functions glibc loads
 * libraries of the host, which may be of another version or belong to another C library; the
 * functions here replace those of glibc. If one is missing here, the link fails.
 */
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curses.h>
#include "terminfo.h"

/* The linker's --wrap asks for these names. */
void *__wrap_dlopen(const char *file, int mode);
SCREEN *__real_newterm(const char *type, FILE *out, FILE *in);
SCREEN *__wrap_newterm(const char *type, FILE *out, FILE *in);

/* libdw looks for libdebuginfod when it starts, though nobody asks that library for anything. */
void *__wrap_dlopen(const char *file, int mode)
{
	(void)file, (void)mode;
	return NULL;
}

/* ---- users and groups: read from /etc ---- */

static struct passwd *find_user(const char *name, uid_t uid)
{
	FILE *file = fopen("/etc/passwd", "re");
	struct passwd *user;

	if (!file)
		return NULL;
	do
		user = fgetpwent(file);
	while (user && (name ? strcmp(user->pw_name, name) != 0 : user->pw_uid != uid));
	fclose(file);
	return user;
}

struct passwd *getpwnam(const char *name)
{
	return find_user(name, 0);
}

struct passwd *getpwuid(uid_t uid)
{
	return find_user(NULL, uid);
}

static struct group *find_group(const char *name, gid_t gid)
{
	FILE *file = fopen("/etc/group", "re");
	struct group *group;

	if (!file)
		return NULL;
	do
		group = fgetgrent(file);
	while (group && (name ? strcmp(group->gr_name, name) != 0 : group->gr_gid != gid));
	fclose(file);
	return group;
}

struct group *getgrnam(const char *name)
{
	return find_group(name, 0);
}

struct group *getgrgid(gid_t gid)
{
	return find_group(NULL, gid);
}

static bool is_member(const struct group *group, const char *name)
{
	for (char **member = group->gr_mem; *member; member++)
		if (!strcmp(*member, name))
			return true;
	return false;
}

int initgroups(const char *name, gid_t gid)
{
	FILE *file = fopen("/etc/group", "re");
	gid_t groups[1024] = {gid};
	const struct group *group;
	size_t n = 1;

	while (file && n < sizeof(groups) / sizeof(groups[0]) && (group = fgetgrent(file)))
		if (group->gr_gid != gid && is_member(group, name))
			groups[n++] = group->gr_gid;
	if (file)
		fclose(file);
	return setgroups(n, groups);
}

/* ---- names of hosts: libevent can look them up; nagletrace uses none ---- */

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **result)
{
	(void)node, (void)service, (void)hints, (void)result;
	return EAI_FAIL;
}

void freeaddrinfo(struct addrinfo *list)
{
}

struct servent *getservbyname(const char *name, const char *protocol)
{
	(void)name, (void)protocol;
	return NULL;
}

struct protoent *getprotobynumber(int number)
{
	return NULL;
}

/* ---- terminals ---- */

/*
 * Falls back to our own description of xterm, which most terminals understand, if the host has no
 * terminfo.
 */
SCREEN *__wrap_newterm(const char *type, FILE *out, FILE *in)
{
	static const char *const alike[] = {"xterm", "screen", "tmux", "rxvt",  "alacritty",
					    "kitty", "foot",   "vte",  "gnome", "konsole"};
	SCREEN *screen = __real_newterm(type, out, in);
	const char *term = type ? type : getenv("TERM");

	for (size_t i = 0; !screen && term && i < sizeof(alike) / sizeof(alike[0]); i++) {
		if (strncmp(term, alike[i], strlen(alike[i])) != 0)
			continue;
		setenv("TERMINFO", NT_TERMINFO, 1);
		return __real_newterm(NT_TERMINFO_NAME, out, in);
	}
	return screen;
}
