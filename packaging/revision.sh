# SPDX-License-Identifier: GPL-2.0
# deb.sh and rpm.sh source this. It checks that $revision counts the packagings of this version.
case $revision in
'' | *[!0-9]* | 0*)
	echo "nagletrace: REVISION=$revision: not a number from 1 on; give the count of packagings of this version" >&2
	exit 2
	;;
esac
