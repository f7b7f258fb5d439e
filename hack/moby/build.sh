#!/bin/sh
# Builds a current Docker Engine once, against which the Docker driver is tested beside Debian's of 2023. Prints the folder that
# holds it: a cache folder outside the checkout, keyed by a hash of the sources.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

build_into() {
	version=$(sed -n 's|.*github.com/moby/moby/v2 v\([^ ]*\).*|\1|p' go.mod)
	go_build "$1/dockerd" "-X github.com/moby/moby/v2/dockerversion.Version=$version" github.com/moby/moby/v2/cmd/dockerd
}

build_once hack/moby "a current Docker Engine" "$(key_of build.sh go.mod go.sum)" dockerd \
	"a current Docker Engine, once (about five minutes on two cores)"
