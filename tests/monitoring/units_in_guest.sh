#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest (test_units.py): installs, starts systemd as the init of a container that is the guest itself but for
# its process numbers, starts both units there, and prints what they do as lines "name value".
set -eu

prefix=/run/installed
make --no-print-directory install DEPS=have prefix=$prefix >/dev/null

# systemd writes into /etc, and so does systemd-sysusers; the guest's own is the machine's
cp -a /etc /run/etc
mount --bind /run/etc /etc
rm -f /etc/machine-id
touch /etc/machine-id
find /etc/systemd/system -name '*.wants' -exec rm -rf {} +
systemd-sysusers $prefix/lib/sysusers.d/nagletrace.conf
mkdir -p /run/systemd/system
cp $prefix/lib/systemd/system/nagletrace*.service /run/systemd/system
# no journal runs here
for unit in nagletrace nagletrace-exporter; do
	mkdir -p /run/systemd/system/$unit.service.d
	printf '[Service]\nStandardError=append:/run/units.log\n' \
		>/run/systemd/system/$unit.service.d/log.conf
done
cat >/run/systemd/system/bare.target <<-END
	[Unit]
	Description=nothing but what is started by hand
	DefaultDependencies=no
END
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
unshare --mount --pid --fork --mount-proc env -i container=guest PATH="$PATH" \
	/lib/systemd/systemd --unit=bare.target --show-status=0 --log-target=kmsg </dev/null &

# systemd talks to nobody in another process namespace
inside() {
	nsenter -t "$(pgrep -x systemd)" --pid --mount "$@"
}

systemctl() {
	inside systemctl "$@"
}

# until COMMAND: for at most 60 s
until_true() {
	for _ in $(seq 300); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.2
	done
	echo "gave up waiting for: $*" >&2
	tail -n 40 /run/units.log >&2
	return 1
}

started() {
	systemctl start nagletrace nagletrace-exporter || {
		systemctl status --no-pager -l nagletrace nagletrace-exporter >&2 || true
		tail -n 40 /run/units.log >&2
		return 1
	}
}

# as systemd names it; its number in this namespace
main_pid() {
	id=$(systemctl show -P ControlGroup "$1")
	head -n 1 "/sys/fs/cgroup$id/cgroup.procs"
}

show() {
	pid=$(main_pid "$1")
	sed -n "s/^Cap\(Eff\|Prm\|Bnd\|Amb\):\t/$1 \1 /p; s/^NoNewPrivs:\t/$1 NoNewPrivs /p; s/^Seccomp:\t/$1 Seccomp /p" \
		"/proc/$pid/status"
	echo "$1 user $(stat -c %U "/proc/$pid")"
	echo "$1 exposure $(inside systemd-analyze security --no-pager "$1" 2>/dev/null | sed -n 's/.*exposure level for .*: \([0-9.]*\).*/\1/p')"
}

# the sum of the samples that begin so; in an emulated guest Python takes ten seconds to ask
metric() {
	page=$(curl -sS --fail --max-time 20 http://127.0.0.1:10040/metrics) || return
	printf '%s\n' "$page" | awk -v begin="$1" 'index($0, begin) == 1 {sum += $NF} END {printf "%.1f\n", sum}'
}

# so many times by now, and running
restarted() {
	[ "$(systemctl show -P NRestarts nagletrace)" = "$1" ] && systemctl is-active nagletrace
}

slow_rounds() {
	jq -s 'last | [.rounds[] | select(.latency_us >= 30000)] | length' "$@"
}

stall() {
	build/nagle-lab write-write-read --over veth --rounds 12 | slow_rounds
}

# The drop-in of docs/what-to-do.md, for a program that nobody can change: legacy NAME
legacy() {
	systemctl daemon-reload && systemctl start legacy && echo "$1 $(slow_rounds /run/legacy.json)"
}

until_true systemctl list-units
mountpoint -q /sys/fs/bpf || inside mount -t bpf bpf /sys/fs/bpf
cat >/run/systemd/system/legacy.service <<-END
	[Service]
	Type=oneshot
	ExecStart=$PWD/build/nagle-lab write-write-read --over veth --rounds 12
	StandardOutput=truncate:/run/legacy.json
	StandardError=append:/run/units.log
END
legacy legacy-felt
mkdir /run/systemd/system/legacy.service.d
sed -n '/^```ini$/,/^```$/p' docs/what-to-do.md | sed "/^\`/d; s,/usr,$prefix," \
	>/run/systemd/system/legacy.service.d/nodelay.conf
legacy legacy-kept || echo "legacy-kept refused"
echo "legacy-left $(inside $prefix/sbin/nagletrace check | grep -c 'kept' || true)"
started
echo "daemon active $(systemctl is-active nagletrace)"
echo "exporter active $(systemctl is-active nagletrace-exporter)"
echo "socket $(stat -c '%a %U:%G' /run/nagletrace/nagletrace.sock)"
show nagletrace
show nagletrace-exporter
echo "unfiltered $(grep -c 'cannot install the seccomp filter' /run/units.log || true)"
until_true metric nagletrace_up
echo "felt $(stall)"
sleep 1
echo "told $(metric 'nagletrace_stalls_total{cause="nagle_delayed_ack",comm="lab-client"')"
echo "up $(metric 'nagletrace_up ')"

# killed: systemd starts it anew, and the exporter finds it again
kill -KILL "$(main_pid nagletrace)"
until_true restarted 1
echo "felt-again $(stall)"
sleep 1
echo "told-again $(metric 'nagletrace_stalls_total{cause="nagle_delayed_ack",comm="lab-client"')"

# silent: its watchdog ends it
kill -STOP "$(main_pid nagletrace)"
until_true restarted 2
echo "watchdog $(systemctl show -P NRestarts nagletrace)"

systemctl stop nagletrace
echo "stopped $(systemctl show -P Result nagletrace) $(systemctl is-active nagletrace || true)"
echo "up-after $(metric 'nagletrace_up ')"
systemctl stop nagletrace-exporter

# The drop-in of docs/install.md for an option that takes more: with_option OPTION CAPABILITIES
with_option() {
	echo "NAGLETRACE_OPTIONS=\"$1\"" >/etc/default/nagletrace
	sed -n '/^```ini$/,/^```$/p' docs/install.md | sed "/^\`/d; s/CAP_SYS_ADMIN/$2/" \
		>/run/systemd/system/nagletrace.service.d/more.conf
	systemctl daemon-reload
	systemctl start nagletrace
	main=$(main_pid nagletrace)
	sed -n "s/^CapEff:\t/with ${1%% *} /p" "/proc/$main/status"
	for child in $(cat "/proc/$main/task/$main/children"); do # of --stacks
		sed -n "s/^CapEff:\t/keeper with ${1%% *} /p" "/proc/$child/status"
	done
	systemctl stop nagletrace
}
with_option "--max-overhead 50" CAP_SYS_ADMIN
with_option --stacks "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_CHECKPOINT_RESTORE"
