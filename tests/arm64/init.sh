#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# The first process of an arm64 guest: plays /cases and prints, for emulated.py, what came of each. A case is a line
# NAME|TRACER|LAB|LAB…: nagletrace's arguments, and those of each nagle-lab, if any. CLIENT and SERVER stand for the pids
# of the first lab. What is printed: a line `@NAME FILE`, then the file; `@NAME code NUMBER`; `@end` at the end of all.
set -f
export PATH=/bin HOME=/ TERM=dumb

# Until the file has this text in it, for a minute at most, while the process lives.
await() { # TEXT FILE PID
	tries=300
	until grep -q "$1" "$2"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] && kill -0 "$3" 2>/dev/null || return 1
		usleep 200000
	done
}

# Labs, each held at its start until the tracer is ready, then one after the other.
play() { # TRACER LAB...
	arguments=$1
	shift
	n=0
	labs=
	for lab; do
		n=$((n + 1))
		mkfifo go$n
		nagle-lab $lab --wait <>go$n >lab$n 2>lab-errors$n &
		labs="$labs $!"
		await '"ready"' lab$n $! || return
	done
	if [ $n -gt 0 ]; then
		client=$(sed -n '1s/.*"client":{"pid":\([0-9]*\).*/\1/p' lab1)
		server=$(sed -n '1s/.*"server":{"pid":\([0-9]*\).*/\1/p' lab1)
		arguments=$(echo "$arguments" | sed "s/CLIENT/$client/; s/SERVER/$server/")
	fi
	nagletrace $arguments >output 2>errors &
	tracer=$!
	if [ $n -gt 0 ]; then
		await 'nagletrace: ready' errors $tracer || return
		n=0
		for lab in $labs; do
			n=$((n + 1))
			echo >go$n
			wait $lab
		done
		# an experiment ends by itself
		case $arguments in fix*) ;; *) kill -INT $tracer ;; esac
	fi
	wait $tracer
	code=$?
}

busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
busybox --install -s /bin
mount -t tracefs tracefs /sys/kernel/tracing
exec </dev/null >/dev/console 2>&1
ip link set lo up
while read -r line <&4; do
	IFS='|'
	set -- $line
	unset IFS
	name=$1
	shift
	mkdir /tmp/$name
	cd /tmp/$name || break
	touch output errors
	code=-1
	play "$@"
	for file in $(ls | grep -v ^go); do
		echo "@$name $file"
		cat $file
		echo
	done
	echo "@$name code $code"
done 4</cases
echo @end
poweroff -f
