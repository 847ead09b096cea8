# SPDX-License-Identifier: GPL-2.0
# bash completion for nagletrace; tests/live/test_manual.py compares it with the program.
# shellcheck shell=bash

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

_nagletrace_takes_value() {
	case $1 in
	= | -[pncPLDmido]) ;;
	--pid | --name | --cgroup | --netns | --port | --localport | --remoteport | --min | --interval | --count) ;;
	--duration | --output | --hooks | --btf | --max-overhead) ;;
	--socket | --group | --window | --max-series | --max-connections | --for) ;;
	*) return 1 ;;
	esac
}

_nagletrace_value() {
	case $1 in
	-p | --pid) _nagletrace_pids ;;
	-n | --name) _nagletrace_names ;;
	-c | --cgroup) _nagletrace_cgroups ;;
	--netns)
		if [[ $cur == /* ]]; then
			_nagletrace_files
		else
			_nagletrace_pids
		fi
		;;
	-o | --output) _nagletrace_words text json ;;
	--hooks) _nagletrace_words auto function kprobe tracepoint ;;
	--btf | --socket) _nagletrace_files ;;
	--group) _nagletrace_offer < <(compgen -g -- "$cur") ;;
	esac
}

# The command that stands before the cursor; nothing: a trace.
_nagletrace_command() {
	local i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		check | daemon | report | top | fix)
			_nagletrace_takes_value "${COMP_WORDS[i - 1]}" || printf %s "${COMP_WORDS[i]}"
			;;
		esac
	done
}

_nagletrace_options() {
	local choose=(--name --cgroup --netns --port --localport --remoteport --ipv4 --ipv6 --min --stacks)
	local hooks=(--hooks --btf) options=(--help --version --json-schema)
	case $1 in
	"")
		options+=("${choose[@]}" "${hooks[@]}" --pid --interval --count --duration --all-holds --timeline)
		options+=(--output --json --wide --max-overhead --progress --quiet --verbose)
		;;
	check) options+=("${hooks[@]}" --output --json --verbose) ;;
	daemon)
		options+=("${choose[@]}" "${hooks[@]}" --max-overhead --quiet --verbose)
		options+=(--socket --group --window --by-cgroup --max-series --max-connections)
		;;
	report) options+=(--output --json --wide --socket --follow) ;;
	top) options+=("${choose[@]}" "${hooks[@]}" --pid --interval --duration --socket) ;;
	fix)
		options+=("${choose[@]}" "${hooks[@]}" --pid --output --json --wide --quiet --verbose)
		options+=(--nodelay --quickack --for --yes --all)
		;;
	esac
	_nagletrace_words "${options[@]}"
}

_nagletrace() {
	local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} command
	COMPREPLY=()
	# bash makes three words of --output=json
	if [[ $cur == = ]]; then
		cur=""
	elif [[ $option == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	command=$(_nagletrace_command)
	if _nagletrace_takes_value "$option"; then
		_nagletrace_value "$option"
	elif [[ $cur == -* || $command ]]; then
		_nagletrace_options "$command"
	else
		_nagletrace_words check daemon report top fix
	fi
}

complete -F _nagletrace nagletrace
