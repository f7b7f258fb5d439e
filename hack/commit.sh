#!/bin/sh
# Prints the commit of the checkout for `ccm-operator version`, with -dirty if files differ from it; "unknown" outside of git.
# `commit.sh time` prints its time in seconds, which becomes the time of everything in the image.
set -eu
cd "$(dirname "$0")/.."
if ! commit=$(git rev-parse --verify --quiet HEAD 2>/dev/null); then
	[ "${1:-}" = time ] && echo 0 || echo unknown
elif [ "${1:-}" = time ]; then
	git log -1 --format=%ct
else
	echo "$commit$([ -z "$(git status --porcelain)" ] || echo -dirty)"
fi
