#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Starts a program that writes a request in two parts, attaches nagletrace to it, and shows the report.
# Usage: demo.sh NAGLETRACE NAGLE_LAB
set -eu

tracer=$1 lab=$2
work=$(mktemp -d)
lab_pid= tracer_pid=
end() {
	[ -z "$tracer_pid" ] || kill -INT "$tracer_pid" 2>/dev/null || true
	[ -z "$lab_pid" ] || kill "$lab_pid" 2>/dev/null || true
	wait
	rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM

# wait_for FILE TEXT: until the file holds the text, at most ten seconds
wait_for() {
	for _ in $(seq 100); do
		grep -q "$2" "$1" 2>/dev/null && return 0
		sleep 0.1
	done
	echo "demo: gave up waiting for $2" >&2
	cat "$1" >&2
	return 1
}

mkfifo "$work/go"
echo "\$ nagle-lab write-write-read --rounds 25          # a client writes 6 B, 7 B, then waits for the answer"
"$lab" write-write-read --rounds 25 --wait <"$work/go" >"$work/lab" 2>"$work/lab.err" &
lab_pid=$!
exec 3>"$work/go"
wait_for "$work/lab" '"ready"'
client=$(sed -n 's/.*"client": *{ *"pid": *\([0-9]*\).*/\1/p' "$work/lab" | head -n 1)

echo "\$ sudo nagletrace -p $client --stacks"
"$tracer" -p "$client" --stacks >"$work/report" 2>"$work/err" &
tracer_pid=$!
wait_for "$work/err" "nagletrace: ready"
cat "$work/err"
echo >&3
exec 3>&-
wait "$lab_pid" || { cat "$work/lab.err" >&2; exit 1; }
lab_pid=
# the traced process has ended, so the trace ends by itself, with the closing report
wait "$tracer_pid"
tracer_pid=
cat "$work/report"
grep -q 'nagletrace: [1-9][0-9]* stalls' "$work/report"
