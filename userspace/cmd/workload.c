// SPDX-License-Identifier: GPL-2.0
#include "cmd/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/numbers.h"
#include "cmd/options_table.h"
#include "privileges/privileges.h"

/* The shells and env(1) use the same. */
#define CANNOT_EXECUTE 126
#define NOT_FOUND      127
#define KILLED_BY      128 /* plus the signal */

/* The signals that are passed on. A terminal stops and continues each of us by itself. */
static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
#define N_PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static int channel = -1;    /* the tracer's end of a socket whose other end the command has */
static volatile bool *runs; /* shared by the three: the command was told to begin */

/* Finds the user who runs the command: the one of --user, or who called sudo. NULL: as we do. */
static bool find_user(const struct nt_settings *settings, const struct passwd **user,
		      struct nt_error *error)
{
	const char *sudo = geteuid() ? NULL : getenv("SUDO_UID");
	uint64_t uid;

	*user = NULL;
	if (settings->user)
		*user = getpwnam(settings->user);
	else if (sudo && *sudo)
		*user = nt_parse_number(sudo, strlen(sudo), UINT32_MAX - 1, &uid) ? getpwuid(uid)
										  : NULL;
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
	*runs = true;
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

/* Has the terminal sent this signal to the command too? It has if both are of one group; whoever
 * left it goes on when the terminal is gone. */
static bool reached(pid_t command, const siginfo_t *info)
{
	return info->si_code > 0 && (info->si_signo == SIGHUP || getpgid(command) == getpgrp());
}

/*
 * Passes signals on to the command until it and the tracer have ended. A terminal has sent its
 * signals to the command itself. Once the command has ended, a signal ends us, which ends the
 * tracer.
 */
static _Noreturn void supervise(pid_t command, pid_t tracer, const sigset_t *signals)
{
	bool ended = false, traces = true;
	int code = 0, tracer_code = 0;

	while (!ended || traces) {
		siginfo_t info;
		int number = sigwaitinfo(signals, &info), status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			if (pid == command) {
				ended = true;
				code = code_of(status);
			} else if (pid == tracer) {
				traces = false;
				tracer_code = code_of(status);
			}
		}
		if (ended && code && !*runs) /* a signal ended it before the tracer was ready */
			_exit(code);
		if (number <= 0 || number == SIGCHLD)
			continue;
		if (ended) /* perhaps by this very signal, which ended the tracer first */
			_exit(code ? code : *runs ? KILLED_BY + number : NT_EXIT_FAILED);
		if (!reached(command, &info) && kill(command, number))
			nt_log("cannot pass signal %d on to the command: %s", number,
			       strerror(errno));
	}
	if (!code && !*runs && !tracer_code)
		code = NT_EXIT_FAILED; /* a signal ended the tracer before it was ready */
	_exit(code ? code : tracer_code);
}

/* Gives up what the supervisor does not need: as root, all but the right to signal a command that
 * becomes another user. */
static void give_up(const struct passwd *user)
{
	static const cap_value_t kill_any[] = {CAP_KILL};
	int err = user ? become(user) : 0;

	if (!err)
		err = nt_privileges_drop(kill_any, !geteuid(), NULL, 0, NULL, NULL, 0);
	if (err)
		nt_log("cannot give up privileges: %s", strerror(-err));
}

/* Makes the socket; its ends are none of the streams, though those may be closed. Returns 0 or
 * -errno.
 */
static int make_channel(int ends[2])
{
	int low[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, low))
		return -errno;
	for (size_t i = 0; i < 2; i++) {
		ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (ends[i] < 0)
			return -errno;
		close(low[i]);
	}
	return 0;
}

/*
 * Has the tracer get SIGTERM when the supervisor ends and with it the other end of this pipe. The
 * supervisor may not signal us, and neither could PR_SET_PDEATHSIG, which asks for its permission.
 */
static int end_with_the_other_end(int pipe)
{
	if (fcntl(pipe, F_SETSIG, SIGTERM) || fcntl(pipe, F_SETOWN, getpid()) ||
	    fcntl(pipe, F_SETFL, O_ASYNC | O_NONBLOCK))
		return -errno;
	return 0;
}

bool nt_workload_prepare(struct nt_settings *settings, struct nt_error *error)
{
	const struct passwd *user;
	sigset_t signals, before;
	pid_t command, tracer;
	int ends[2] = {-1, -1}, life[2], err;

	if (!find_user(settings, &user, error))
		return false;
	err = make_channel(ends);
	runs = mmap(NULL, sizeof(*runs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (err || runs == MAP_FAILED)
		return nt_started(err ? err : -errno, error);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would keep exit codes from us */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (size_t i = 0; i < N_PASSED_ON; i++)
		sigaddset(&signals, passed_on[i]);
	sigprocmask(SIG_BLOCK, &signals, &before);
	command = fork();
	if (!command) {
		close(ends[1]);
		run_command(settings->workload, user, ends[0], &before);
	}
	close(ends[0]);
	tracer = command < 0 || pipe2(life, O_CLOEXEC) ? -1 : fork();
	if (tracer < 0) /* a command that waits ends with the socket's other end */
		return nt_started(-errno, error);
	if (tracer) {
		close(ends[1]);
		close(life[0]);
		give_up(user);
		supervise(command, tracer, &signals);
	}
	close(life[1]);
	err = end_with_the_other_end(life[0]);
	if (err)
		return nt_started(err, error);
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
	bool begun = send(channel, "", 1, MSG_NOSIGNAL) == 1 && !read(channel, &byte, 1);

	close(channel);
	return begun;
}

static void leave_to_the_command(void *context, uint32_t number)
{
}

int nt_workload_watch_signals(struct nt_loop *loop)
{
	uint64_t set = 0;

	for (size_t i = 0; i < N_PASSED_ON; i++)
		set |= NT_SIGNAL(passed_on[i]);
	/* the end of the supervisor is one for output that nobody reads */
	return nt_loop_signals(loop, NT_SIGNAL(SIGTERM), set & ~NT_SIGNAL(SIGTERM),
			       leave_to_the_command, NULL);
}
