#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# The first process of an arm64 guest: plays /cases and prints, for emulated.py, what came of each. A case is a line
# NAME|LAB|TRACER: nagle-lab's arguments, or nothing, and nagletrace's, in which CLIENT and SERVER stand for their pids.
# A line is @NAME FILE, then the file; @NAME code NUMBER; or @end at the end of all.
set -f
export PATH=/bin HOME=/ TERM=dumb

tell() { # FILE
	echo "@$name $1"
	cat "$1"
	echo
}

# Until the file has this text in it, for a minute at most.
await() { # TEXT FILE PID
	tries=600
	until grep -q "$1" "$2"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] && kill -0 "$3" 2>/dev/null || return 1
		usleep 100000
	done
}

trace() { # LAB TRACER: the lab, held at its start until the tracer is ready
	mkfifo go
	nagle-lab $1 --wait <go >lab 2>lab-errors &
	lab=$!
	exec 3>go
	await '"ready"' lab $lab || return
	client=$(sed -n '1s/.*"client":{"pid":\([0-9]*\).*/\1/p' lab)
	server=$(sed -n '1s/.*"server":{"pid":\([0-9]*\).*/\1/p' lab)
	nagletrace $(echo "$2" | sed "s/CLIENT/$client/; s/SERVER/$server/") >output 2>errors 3>&- &
	tracer=$!
	await 'nagletrace: ready' errors $tracer && echo >&3
	exec 3>&-
	wait $lab
	# an experiment ends by itself, and may end before the lab
	case $2 in fix*) ;; *) kill -INT $tracer 2>/dev/null ;; esac
	wait $tracer
	code=$?
}

play() { # LAB TRACER
	if [ -n "$1" ]; then
		code=-1
		trace "$1" "$2"
	else
		nagletrace $2 >output 2>errors
		code=$?
	fi
}

busybox mkdir -p /proc /sys /dev /tmp /etc /run
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
busybox --install -s /bin
mount -t tracefs tracefs /sys/kernel/tracing
exec </dev/null >/dev/console 2>&1
ip link set lo up
while IFS='|' read -r name lab tracer <&4; do
	mkdir /tmp/$name
	cd /tmp/$name || break
	touch lab lab-errors output errors
	play "$lab" "$tracer"
	for file in lab lab-errors output errors; do
		tell $file
	done
	echo "@$name code $code"
done 4</cases
echo @end
poweroff -f
