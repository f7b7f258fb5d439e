#!/bin/sh
# Builds k8s.io/cloud-provider on the cloud of the driver fake once, for the test that compares our cloud-controller-manager
# with it. Prints the folder that holds it: a cache folder outside the checkout, keyed by a hash of the sources. It has a key of
# its own, because the programs of hack/ccm/build.sh take minutes.
set -eu
cd "$(dirname "$0")/.."
. ../build-once.sh

build_into() {
	(
		cd fake
		go_build "$1/fake-cloud-controller-manager" "" .
	)
}

build_once hack/ccm-fake "the cloud-controller-manager that ours is compared with" \
	"$(key_of fake/build.sh fake/go.mod fake/go.sum fake/main.go fake/cloud.go)" fake-cloud-controller-manager \
	"k8s.io/cloud-provider on a fake cloud, once (about two minutes on two cores)"
