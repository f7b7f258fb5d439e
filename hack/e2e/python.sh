#!/bin/sh
# Prints a tar file with a Python interpreter and its standard library, for `docker import`: in place of an image such as python:slim, as
# no registry may be reachable. Made of Debian's packages once, in a cache folder outside the checkout.
set -eu
cd "$(dirname "$0")"
packages="python3.11-minimal libpython3.11-minimal libpython3.11-stdlib busybox-static libc6 libexpat1 libffi8 libgcc-s1 libssl3 zlib1g"
# shellcheck disable=SC2086 # a list
debian=$(../debian.sh $packages)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/e2e
out=$cache/python-$( (cat python.sh; echo "$debian") | sha256sum | cut -c1-16).tar
if [ ! -f "$out" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/.python-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	root=$tmp/root
	mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
	chmod 1777 "$root/tmp"
	# Merged as in Debian.
	for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
	cp "$debian/usr/bin/python3.11" "$root/usr/bin/"
	ln -s python3.11 "$root/usr/bin/python3"
	# Scripts begin with it.
	cp "$debian/bin/busybox" "$root/usr/bin/"
	for name in env sh; do ln -s busybox "$root/usr/bin/$name"; done
	cp -a "$debian"/lib/*-linux-gnu "$debian/usr/lib/." "$root/usr/lib/"
	if [ -d "$debian/lib64" ]; then cp -a "$debian/lib64" "$root/usr/"; else ln -s lib "$root/usr/lib64"; fi
	rm -rf "$root"/usr/lib/*-linux-gnu/gconv
	echo "root:x:0:0:root:/:/bin/sh" >"$root/etc/passwd"
	find "$root" -exec touch --no-dereference --date=@0 {} +
	tar --sort=name --owner=0 --group=0 --numeric-owner -C "$root" -cf "$tmp/python.tar" .
	mv "$tmp/python.tar" "$out"
fi
echo "$out"
