#!/bin/sh
# Fails if a binary needs a newer glibc than the image's base has: that of UBI 9.
set -eu
has=2.34
needs=$(objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
[ -n "$needs" ] || { echo "hack/glibc.sh: $1 names no version of glibc" >&2; exit 1; }
if [ "$(printf '%s\n' "$needs" "$has" | sort -V | tail -n 1)" != "$has" ]; then
	echo "hack/glibc.sh: $1 needs glibc $needs, and the image's base has $has: compile on Debian 12 or older, or on UBI 9" >&2
	exit 1
fi
echo "$1 needs glibc $needs; the base has $has" >&2
