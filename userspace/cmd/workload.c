// SPDX-License-Identifier: GPL-2.0
#include "cmd/workload.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/numbers.h"
#include "cmd/options_table.h"
#include "privileges/privileges.h"

/* As the shells have them, and env(1). */
#define CANNOT_EXECUTE 126
#define NOT_FOUND      127
#define KILLED_BY      128 /* plus the signal */

/* The signals that are passed on; those that stop and continue reach each of us by themselves. */
static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
#define N_PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static int channel = -1; /* the tracer's end of a socket whose other end the command has */

/*
 * Finds as whom the command runs: whom --user names, or who called sudo. Sets *user to NULL if it
 * runs as we do.
 */
static bool find_user(const struct nt_settings *settings, const struct passwd **user,
		      struct nt_error *error)
{
	const char *sudo = geteuid() ? NULL : getenv("SUDO_UID");
	uint64_t uid;

	*user = NULL;
	if (settings->user)
		*user = getpwnam(settings->user);
	else if (sudo && nt_parse_number(sudo, strlen(sudo), UINT32_MAX - 1, &uid))
		*user = getpwuid(uid);
	else
		return true;
	if (!*user)
		return nt_error_set(error, NT_EXIT_USAGE,
				    "cannot find the user who called sudo; give --user NAME");
	if ((*user)->pw_uid == geteuid())
		*user = NULL;
	else if (geteuid())
		return nt_error_set(error, NT_EXIT_PERMISSION,
				    "--user %s: only root may run a command as another user; run "
				    "it with sudo",
				    settings->user);
	return true;
}

/* Becomes that user for good, in all but the streams and the directory. Returns 0 or -errno. */
static int become(const struct passwd *user)
{
	if (initgroups(user->pw_name, user->pw_gid) ||
	    setresgid(user->pw_gid, user->pw_gid, user->pw_gid) ||
	    setresuid(user->pw_uid, user->pw_uid, user->pw_uid) ||
	    setenv("HOME", user->pw_dir, 1) || setenv("SHELL", user->pw_shell, 1) ||
	    setenv("USER", user->pw_name, 1) || setenv("LOGNAME", user->pw_name, 1))
		return -errno;
	return 0;
}

/* Reports why the command cannot run. Returns its exit code. */
static int cannot_run(const char *command, int cause)
{
	char shown[NT_SHOWN_LEN];

	nt_show(command, strlen(command), shown);
	nt_log("%s: cannot run it: %s", shown, strerror(cause));
	return cause == ENOENT ? NOT_FOUND : CANNOT_EXECUTE;
}

/* Waits until the tracer is ready, then executes the command. */
static _Noreturn void run_command(char *const *command, const struct passwd *user, int tracer,
				  const sigset_t *mask)
{
	int err = user ? become(user) : 0, code;
	char byte;

	if (err)
		_exit(cannot_run(command[0], -err));
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (read(tracer, &byte, 1) != 1)
		_exit(NT_EXIT_OK); /* the tracer has ended, and reported why */
	execvp(command[0], command);
	code = cannot_run(command[0], errno);
	if (write(tracer, "", 1) != 1)
		nt_log("cannot end the trace: %s", strerror(errno));
	_exit(code);
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : KILLED_BY + WTERMSIG(status);
}

/* Passes signals on to the command until it and the tracer have ended. A terminal has sent its
 * signals to the command itself. */
static _Noreturn void supervise(pid_t command, pid_t tracer, const sigset_t *signals)
{
	bool runs = true, traces = true;
	int code = 0, tracer_code = 0;

	while (runs || traces) {
		siginfo_t info;
		int number = sigwaitinfo(signals, &info), status;
		pid_t pid;

		if (number > 0 && number != SIGCHLD && info.si_code <= 0 && runs)
			kill(command, number);
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			if (pid == command) {
				runs = false;
				code = code_of(status);
			} else if (pid == tracer) {
				traces = false;
				tracer_code = code_of(status);
			}
		}
	}
	_exit(code ? code : tracer_code);
}

/* Gives up what the supervisor does not need. The command can be signalled by its own user. */
static void give_up(const struct passwd *user)
{
	char kept[128];
	int err = user ? become(user) : 0;

	if (!err)
		err = nt_privileges_drop(NULL, 0, NULL, 0, NULL, kept, sizeof(kept));
	if (err)
		nt_log("cannot give up privileges: %s", strerror(-err));
}

bool nt_workload_prepare(struct nt_settings *settings, struct nt_error *error)
{
	const struct passwd *user;
	sigset_t signals, before;
	pid_t command, tracer;
	int ends[2];

	if (!find_user(settings, &user, error))
		return false;
	signal(SIGCHLD, SIG_DFL); /* ignored, it would keep exit codes from us */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (size_t i = 0; i < N_PASSED_ON; i++)
		sigaddset(&signals, passed_on[i]);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return nt_started(-errno, error);
	command = fork();
	if (!command) {
		close(ends[1]);
		run_command(settings->workload, user, ends[0], &before);
	}
	close(ends[0]);
	tracer = command < 0 ? -1 : fork();
	if (tracer < 0) /* a command that waits ends with the socket's other end */
		return nt_started(-errno, error);
	if (tracer) {
		close(ends[1]);
		give_up(user);
		supervise(command, tracer, &signals);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	channel = ends[1];
	settings->pids[0] = command;
	settings->n_pids = 1;
	return true;
}

bool nt_workload_start(void)
{
	char byte;
	/* the command's end is closed when it is executed */
	bool runs = send(channel, "", 1, MSG_NOSIGNAL) == 1 && !read(channel, &byte, 1);

	close(channel);
	return runs;
}

void nt_workload_ignore_signals(void)
{
	for (size_t i = 0; i < N_PASSED_ON; i++)
		signal(passed_on[i], SIG_IGN);
}
