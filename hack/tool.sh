#!/bin/sh
# Prints the folder of a cargo tool, such as `hack/tool.sh cargo-deny 0.20.2`. The first call on a machine builds it into
# a cache folder outside the checkout, which takes minutes.
set -eu
root=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/tools/$1-$2
if [ ! -x "$root/bin/$1" ]; then
	echo "hack/tool.sh: building $1 $2, which takes minutes ..." >&2
	CARGO_TARGET_DIR=$root/target cargo install --locked --quiet --version "$2" --root "$root" "$1" >&2
	rm -rf "$root/target"
fi
echo "$root/bin"
