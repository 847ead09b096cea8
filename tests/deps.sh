#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Installs the Debian packages named, where they are missing; without apt, or with DEPS=say, says which are wanted.
set -eu

[ "${DEPS:-}" != have ] || exit 0
missing=
for package; do
	dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "${DEPS:-}" = say ]; then
	echo "nagletrace: not installed, and wanted:$missing" >&2
	echo "nagletrace: install them (apt-get install), or run make again with DEPS=have if you have what gives the same" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null; then
	echo "nagletrace: this system has no apt; wanted are (as Debian calls them):" "$@" >&2
	echo "nagletrace: install what gives the same, then run make again with DEPS=have" >&2
	exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
install="$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
echo "nagletrace: installing$missing"
# Debian starts what it installs; servers are wanted here as programs only
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap '$sudo rm -f $policy' EXIT
	trap 'exit 130' INT TERM HUP # else dash leaves it there
	printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
	$sudo chmod 755 $policy
fi
# the lists may be old or absent
# shellcheck disable=SC2086
$install $missing >/dev/null 2>&1 || { $sudo apt-get update -q >/dev/null && $install $missing; }
