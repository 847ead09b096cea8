# SPDX-License-Identifier: GPL-2.0
# deb.sh and rpm.sh source this at the top of the tree. It checks that $revision counts the packagings of this version,
# and dates the packages: by the commit of a clone ($clone is set), or by the changelog of an archive.
case $revision in
'' | *[!0-9]* | 0*)
	echo "nagletrace: REVISION=$revision: not a number from 1 on; give the count of packagings of this version" >&2
	exit 2
	;;
esac
clone=
if [ -e .git ] && git rev-parse -q --verify HEAD >/dev/null; then
	clone=yes
	when=$(git log -1 --format=%ct)
else
	when=$(stat -c %Y CHANGELOG.md)
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$when}
export SOURCE_DATE_EPOCH
