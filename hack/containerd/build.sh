#!/bin/sh
# Builds a current containerd once, which has image volumes: Debian's of 2023 has none. Prints the folder that holds it and its shim: a
# cache folder outside the checkout, keyed by a hash of the sources.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

build_into() {
	version=$(sed -n 's|.*github.com/containerd/containerd/v2 \(v[^ ]*\).*|\1|p' go.mod | head -n 1)
	go_build "$1/" "-X github.com/containerd/containerd/v2/version.Version=$version" tool
}

build_once hack/containerd "a current containerd" "$(key_of build.sh go.mod go.sum)" containerd \
	"a current containerd, once (about three minutes on two cores)"
