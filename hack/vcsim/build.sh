#!/bin/sh
# Builds the vCenter of a test once: govmomi's simulator with what a cloud-controller-manager asks of a vCenter. Prints the
# folder that holds it: a cache folder outside the checkout, keyed by a hash of the sources.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

build_into() {
	go_build "$1/vcsim" "" .
}

build_once hack/vcsim "the vCenter of a test" "$(key_of build.sh go.mod go.sum main.go)" vcsim \
	"govmomi's vCenter simulator, once (about half a minute on two cores)"
