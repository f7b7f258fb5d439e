#!/bin/sh
# Builds Helm once, with which the tests install the chart. Prints the folder that holds it: a cache folder outside the
# checkout, keyed by a hash of the sources.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

build_into() {
	version=$(sed -n 's|.*helm.sh/helm/v3 \(v[0-9.]*\).*|\1|p' go.mod)
	# The minor version of Kubernetes that `helm template` and `helm lint` assume without a cluster; unset it is 20.
	minor=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes v1\.\([0-9]*\)\..*|\1|p' ../testplane/go.mod | head -n 1)
	package=helm.sh/helm/v3
	flags="-X $package/internal/version.version=$version"
	for of in chartutil lint/rules; do
		flags="$flags -X $package/pkg/$of.k8sVersionMajor=1 -X $package/pkg/$of.k8sVersionMinor=$minor"
	done
	go_build "$1/helm" "$flags" $package/cmd/helm
}

build_once hack/helm "Helm, which installs the chart in the tests" "$(key_of build.sh go.mod go.sum ../testplane/go.mod)" helm \
	"Helm, once (about two minutes on two cores)"
