#!/bin/sh
# Prints the folder of a Python environment with moto, which answers as the API of AWS does, and AWS's own client, in the
# versions of moto.txt: `bin/python -m moto.server` and `bin/python -m awscli`. Made once, in a cache folder outside the checkout.
set -eu
cd "$(dirname "$0")"
fail() { echo "hack/e2e/moto.sh: $*" >&2; exit 1; }
python=$(command -v python3) || fail "python3 is missing: install Python 3.10 or newer with its module venv"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/e2e
# An environment holds for the Python that made it.
out=$cache/moto-$( (cat moto.txt moto.sh; "$python" -c 'import sys; print(sys.version, sys.executable)') | sha256sum | cut -c1-16)
if [ ! -d "$out" ]; then
	echo "hack/e2e/moto.sh: installing moto and the client of AWS, once (about a minute, 300 MB) ..." >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/.moto-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	"$python" -m venv "$tmp/moto" >&2 || fail "python3 has no module venv: install it, on Debian the package python3-venv"
	"$tmp/moto/bin/python" -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps --requirement moto.txt >&2
	# A rename is atomic: two calls at once both end well, and a broken one leaves nothing that looks whole. The environment's
	# python can be moved, its other programs cannot.
	mv -T "$tmp/moto" "$out" 2>/dev/null || [ -d "$out" ]
fi
echo "$out"
