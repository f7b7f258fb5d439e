#!/bin/sh
# Prints a tar file with what the tests need of the image's base: bash, its libraries and the public certificates, at the
# places of UBI. Made of Debian's packages once, in a cache folder outside the checkout, as no registry may be reachable.
set -eu
cd "$(dirname "$0")"
packages="bash ca-certificates libc6 libgcc-s1 libtinfo6"
# shellcheck disable=SC2086 # a list
debian=$(../debian.sh $packages)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/e2e
out=$cache/base-$( (cat base.sh; echo "$debian") | sha256sum | cut -c1-16).tar
if [ ! -f "$out" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/.base-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	root=$tmp/root
	mkdir -p "$root/etc/pki/ca-trust/extracted/pem" "$root/usr/bin" "$root/usr/lib" "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
	chmod 1777 "$root/tmp"
	# Merged as in UBI and Debian.
	for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
	cp "$debian/bin/bash" "$root/usr/bin/"
	cp -a "$debian"/lib/*-linux-gnu "$root/usr/lib/"
	if [ -d "$debian/lib64" ]; then cp -a "$debian/lib64" "$root/usr/"; else ln -s lib "$root/usr/lib64"; fi
	rm -rf "$root"/usr/lib/*-linux-gnu/gconv
	cat "$debian"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	echo "root:x:0:0:root:/:/bin/bash" >"$root/etc/passwd"
	find "$root" -exec touch --no-dereference --date=@0 {} +
	tar --sort=name --owner=0 --group=0 --numeric-owner -C "$root" -cf "$tmp/base.tar" .
	mv "$tmp/base.tar" "$out"
fi
echo "$out"
