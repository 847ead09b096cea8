# SPDX-License-Identifier: GPL-2.0
# bash completion for nagletrace. `make options` writes what it knows of the options from their table.
# shellcheck shell=bash

# options: begin
_nagletrace_commands=(check daemon report top fix sample)
# of each option: its name, its letter, what completes its value, its commands
_nagletrace_options='
--pid -p pids trace top fix sample
--name -n names trace daemon top fix sample
--cgroup -c cgroups trace daemon top fix sample
--container -- any trace daemon top fix sample
--pod -- any trace daemon top fix sample
--unit -- any trace daemon top fix sample
--user -- users trace
--netns -- namespaces trace daemon top fix sample
--port -P any trace daemon top fix sample
--localport -L any trace daemon top fix sample
--remoteport -D any trace daemon top fix sample
--ipv4 -4 none trace daemon top fix sample
--ipv6 -6 none trace daemon top fix sample
--min -m any trace daemon top fix
--interval -i any trace top sample
--count -- any trace sample
--duration -d any trace top sample
--fail-on-stall -- none trace
--all-holds -a none trace sample
--stacks -U none trace daemon top fix
--timeline -- none trace
--late-acks -- none trace
--fleet-key -- files trace daemon
--host -- any trace daemon
--output -o text|json trace check report fix sample
--json -j none trace check report fix sample
--output-file -- files trace
--wide -w none trace report fix sample
--utc -- none trace
--hooks -- auto|function|kprobe|tracepoint trace check daemon top fix
--btf -- files trace check daemon top fix sample
--max-overhead -- any trace daemon
--progress -- none trace
--quiet -q none trace daemon fix sample
--verbose -v none trace check daemon fix sample
--help -h none trace check daemon report top fix sample
--version -V none trace check daemon report top fix sample
--json-schema -- none trace check daemon report top fix sample
--nodelay -- none fix
--quickack -- none fix
--quickack-limit -- any fix
--keep -- none fix
--pin -- none fix
--undo -- none fix
--for -- any fix
--yes -y none fix
--all -- none fix
--socket -- files daemon report top
--follow -f none report
--health -- none report
--group -- groups daemon
--window -- any daemon
--standby -- none daemon
--standby-after -- any daemon
--by-cgroup -- none daemon
--max-late-acks -- any daemon
--max-series -- any daemon
--max-connections -- any daemon
'
# options: end

# Offers the lines of stdin that begin with $cur, as they are: compgen -W would expand $() in a process's name.
_nagletrace_offer() {
	local word
	while IFS= read -r word; do
		[[ $word != "$cur"* ]] || COMPREPLY+=("$word")
	done
}

_nagletrace_words() {
	_nagletrace_offer < <(printf '%s\n' "$@")
}

_nagletrace_pids() {
	local before="" pids=(/proc/[0-9]*)
	[[ $cur != *,* ]] || before=${cur%,*},
	_nagletrace_words "${pids[@]/#\/proc\//$before}"
}

# Those that need no quoting.
_nagletrace_names() {
	_nagletrace_offer < <(cat /proc/[0-9]*/comm 2>/dev/null | LC_ALL=C grep -x '[A-Za-z0-9_.+@/-]*' | sort -u)
}

# Called by a test, compopt says that nothing is completed now.
_nagletrace_files() {
	compopt -o filenames 2>/dev/null
	_nagletrace_offer < <(compgen -f -- "$cur")
}

_nagletrace_cgroups() {
	local mount=/sys/fs/cgroup path
	[[ -e $mount/cgroup.controllers ]] || mount+=/unified
	[[ $cur ]] || cur=/
	compopt -o filenames -o nospace 2>/dev/null
	for path in "$mount$cur"*/; do
		[[ ! -d $path ]] || COMPREPLY+=("${path#"$mount"}")
	done
}

# Sets name, letter, value and commands to those of the option that is spelled so.
_nagletrace_find() {
	[[ $1 == -[^-] || $1 == --?* ]] || return 1
	while read -r name letter value commands; do
		[[ $1 != "$name" && $1 != "$letter" ]] || return 0
	done <<<"$_nagletrace_options"
	return 1
}

_nagletrace_takes_value() {
	local name letter value commands
	[[ $1 == = ]] || { _nagletrace_find "$1" && [[ $value != none ]]; }
}

_nagletrace_value() {
	local name letter value commands words
	_nagletrace_find "$1"
	case $value in
	pids) _nagletrace_pids ;;
	names) _nagletrace_names ;;
	cgroups) _nagletrace_cgroups ;;
	namespaces)
		if [[ $cur == /* ]]; then
			_nagletrace_files
		else
			_nagletrace_pids
		fi
		;;
	files) _nagletrace_files ;;
	groups) _nagletrace_offer < <(compgen -g -- "$cur") ;;
	users) _nagletrace_offer < <(compgen -u -- "$cur") ;;
	*\|*)
		IFS='|' read -ra words <<<"$value"
		_nagletrace_words "${words[@]}"
		;;
	esac
}

# The command that stands before the cursor, or else "trace".
_nagletrace_command() {
	local i command=trace
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ " ${_nagletrace_commands[*]} " == *" ${COMP_WORDS[i]} "* ]]; then
			_nagletrace_takes_value "${COMP_WORDS[i - 1]}" || command=${COMP_WORDS[i]}
		fi
	done
	printf %s "$command"
}

# Sets at to the place of the -- before the cursor, behind which stands a command to trace.
_nagletrace_finds_end() {
	for ((at = 1; at < COMP_CWORD; at++)); do
		[[ ${COMP_WORDS[at]} != -- ]] || return 0
	done
	return 1
}

# Completes that command as bash-completion does; without it, offers commands and then files.
_nagletrace_traced() {
	if declare -F _command_offset >/dev/null; then
		_command_offset $(($1 + 1))
	elif ((COMP_CWORD == $1 + 1)); then
		_nagletrace_offer < <(compgen -c -- "$cur" | sort -u)
	else
		_nagletrace_files
	fi
}

# Those that go with the command.
_nagletrace_names_of_options() {
	local name letter value commands
	while read -r name letter value commands; do
		[[ " $commands " != *" $1 "* ]] || printf '%s\n' "$name"
	done <<<"$_nagletrace_options"
}

_nagletrace() {
	local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} command at
	COMPREPLY=()
	if _nagletrace_finds_end; then
		_nagletrace_traced "$at"
		return
	fi
	# bash makes three words of --output=json
	if [[ $cur == = ]]; then
		cur=""
	elif [[ $option == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	command=$(_nagletrace_command)
	if _nagletrace_takes_value "$option"; then
		_nagletrace_value "$option"
	elif [[ $cur == -* || $command != trace ]]; then
		_nagletrace_offer < <(_nagletrace_names_of_options "$command")
	else
		_nagletrace_words "${_nagletrace_commands[@]}"
	fi
}

complete -F _nagletrace nagletrace
