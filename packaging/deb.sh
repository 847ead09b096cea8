#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Builds the Debian packages of this tree, unsigned. Usage: deb.sh DIRECTORY REVISION
# The directory is made anew; it gets the packages, and the copy of the tree that they were built in. Of a clone what git
# tracks is taken, as it lies there; of anything else (an archive of `make dist`) all but build/.
set -eu

out=$1 revision=$2
cd "$(dirname "$0")/.."
. packaging/revision.sh
version=$(cat VERSION)
tree=$out/nagletrace-${version:?}
rm -rf "$out"
mkdir -p "$tree"
if [ "$clone" ]; then
	git ls-files -z >"$out/files"
	tar -c --null -T "$out/files" | tar -x -C "$tree"
else
	tar -c --exclude=./build --exclude=./.git --exclude=__pycache__ . | tar -x -C "$tree"
fi
rm -f "$out/files"
cp -r "$tree/packaging/debian" "$tree/debian"
cd "$tree"
# debian/rules has flags and directories of its own
unset MAKEFLAGS MAKELEVEL
/usr/bin/python3 debian/changelog.py "$version-$revision" CHANGELOG.md >debian/changelog
# without packages of debugging symbols: what lies there then is what is to be installed
DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} noautodbgsym" dpkg-buildpackage -b -us -uc >../build.log 2>&1 || {
	tail -n 30 ../build.log >&2
	echo "nagletrace: dpkg-buildpackage failed; all that it said is in $out/build.log" >&2
	exit 1
}
cd - >/dev/null
ls "$out"/*.deb
