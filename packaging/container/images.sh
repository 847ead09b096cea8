#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Builds both images with buildah, of Debian packages of this tree. Usage: images.sh PACKAGES OUT [BASE]
# PACKAGES is a directory with the packages, and OUT gets nagletrace.tar and nagletrace-exporter.tar, archives that
# podman, docker and ctr load. BASE is an image; without it the base is made of this Debian's packages, and no registry
# is asked. Nothing is left in the user's store of images. Whoever is not root is so in a user namespace only.
set -eu

if [ "$(id -u)" != 0 ]; then
	command buildah unshare true || {
		echo "nagletrace: $(id -un) cannot build images without root: give the user lines in /etc/subuid and" \
			"/etc/subgid and install newuidmap (Debian: uidmap), or run sudo make images" >&2
		exit 1
	}
	exec buildah unshare "$0" "$@"
fi

packages=$1 out=$2 base=${3:-}
here=$(dirname "$0")
version=$(cat "$here/../../VERSION")
mkdir -p "$out/context/packages"
store=$(cd "$out" && pwd)/store
# vfs needs nothing of the kernel, chroot no other program
buildah() {
	command buildah --storage-driver vfs --root "$store" --runroot "$store/run" "$@"
}
forget() {
	buildah rm --all >/dev/null 2>&1 || true
	rm -rf "$store" "$out/context"
}
trap forget EXIT
trap 'exit 130' INT TERM HUP # else dash leaves all there
rm -f "$out/context/packages"/*.deb
cp "$packages"/*.deb "$out/context/packages"

if [ -z "$base" ]; then
	# as Debian's own slim image: no manual pages, no translations, of documents the licences
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# an old one lacks what was mended since
	[ -n "$(find "$out" -name "base-$suite.tar" -mtime -7)" ] || {
		echo "nagletrace: making a base of Debian $suite"
		mmdebstrap --quiet --format=tar --variant=minbase \
			--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
			--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
			--dpkgopt='path-include=/usr/share/doc/*/copyright' \
			"$suite" "$out/base-$suite.part" || exit
		mv "$out/base-$suite.part" "$out/base-$suite.tar"
	}
	container=$(buildah from scratch)
	buildah add -q "$container" "$out/base-$suite.tar" / >/dev/null
	base=localhost/nagletrace-base:$suite
	buildah config --cmd /bin/sh "$container"
	buildah commit -q --rm "$container" "$base" >/dev/null
fi

for target in daemon exporter; do
	case $target in
	daemon) name=nagletrace ;;
	*) name=nagletrace-$target ;;
	esac
	echo "nagletrace: building $name:$version"
	buildah build -q --isolation chroot --network host --pull=false --target "$target" --build-arg BASE="$base" \
		--build-context build="$out/context" --label org.opencontainers.image.title="$name" \
		--label org.opencontainers.image.version="$version" --label org.opencontainers.image.licenses=GPL-2.0-only \
		-t "$name:$version" -f "$here/Containerfile" "$out/context" >/dev/null
	rm -f "$out/$name.tar"
	buildah push -q "$name:$version" "oci-archive:$out/$name.tar:$name:$version"
done
ls -l "$out"/nagletrace*.tar
