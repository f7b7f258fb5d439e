#!/bin/sh
# Prints a folder in which Debian packages are unpacked, such as `hack/debian.sh prometheus`: their programs stand in its
# usr/bin and usr/sbin. Nothing is installed and no service is started. The first call on a machine downloads them into a
# cache folder outside the checkout. Dependencies are not followed: name the packages that are needed.
set -eu
command -v apt-get >/dev/null || { echo "hack/debian.sh: apt-get is missing: this needs Debian or Ubuntu, for $*" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/debian
out=$cache/$1-$( (cat "$0" /etc/debian_version; printf '%s\n' "$@") | sha256sum | cut -c1-16)
if [ ! -d "$out" ]; then
	echo "hack/debian.sh: downloading $* ..." >&2
	mkdir -p "$cache"
	# apt-get itself runs only once at a time.
	exec 8>"$cache/.lock"
	flock 8
	if [ -d "$out" ]; then
		echo "$out"
		exit
	fi
	tmp=$(mktemp -d "$cache/.unpack-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	mkdir "$tmp/packages" "$tmp/root"
	# The lists of a fresh machine may be missing, or name versions that are gone.
	(cd "$tmp/packages" && { apt-get -qq download "$@" 2>/dev/null || { apt-get -qq update && apt-get -qq download "$@"; }; }) >&2
	for package in "$tmp"/packages/*.deb; do dpkg-deb --extract "$package" "$tmp/root"; done
	chmod 755 "$tmp/root"
	# A rename is atomic: a broken call leaves nothing that looks whole.
	mv -T "$tmp/root" "$out"
fi
echo "$out"
