#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Builds the RPM packages, unsigned, of this tree and its static binaries. Usage: rpm.sh OUT REVISION BINARY…
# OUT is made anew and gets the packages. A binary's name ends with its machine, as `make static` names it.
set -eu

cd "$(dirname "$0")/.."
out=$1 revision=$2
. packaging/revision.sh
shift 2
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
# rpmbuild runs make itself
unset MAKEFLAGS MAKELEVEL
for binary; do
	rpmbuild -bb --quiet --target "${binary##*-}" --define "_topdir $out/work" --define "_rpmdir $out" \
		--define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
		--define "tree $PWD" --define "binary $(realpath "$binary")" \
		--define "version $(cat VERSION)" --define "revision $revision" packaging/rpm/nagletrace.spec \
		>"$out/build.log" 2>&1 || {
		tail -n 30 "$out/build.log" >&2
		echo "nagletrace: rpmbuild failed; all that it said is in $out/build.log" >&2
		exit 1
	}
done
rm -rf "$out/work" "$out/build.log"
ls "$out"/*.rpm
