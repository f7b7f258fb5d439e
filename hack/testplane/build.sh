#!/bin/sh
# Builds the control plane of the tests once and prints the folder that holds etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl: a cache folder outside the checkout, keyed by a hash of
# the sources.
# KUBEBUILDER_ASSETS, when set, is printed instead and nothing is built.
# `build.sh crds` prints the folder of OpenShift's API module, whose CRDs the tests install.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

purpose="the control plane that the tests run against"

if [ "${1:-}" = crds ]; then
	need_go hack/testplane "$purpose"
	# Both commands answer from the module cache, without the network, once the module is there.
	dir=$(go list -mod=readonly -m -f '{{.Dir}}' github.com/openshift/api)
	if [ -z "$dir" ]; then
		go mod download github.com/openshift/api >&2
		dir=$(go list -mod=readonly -m -f '{{.Dir}}' github.com/openshift/api)
	fi
	echo "$dir"
	exit 0
fi

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	echo "$KUBEBUILDER_ASSETS"
	exit 0
fi

version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' go.mod | head -n 1)

build_into() {
	minor=${version#v1.}
	minor=${minor%%.*}
	package=k8s.io/component-base/version
	# Without a version the API server reports v0.0.0 and clients stumble over it.
	go_build "$1/testplane" "-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" .
	for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubeadm kubectl; do
		ln -s testplane "$1/$name"
	done
}

build_once hack/testplane "$purpose" "$(key_of go.mod go.sum main.go build.sh)" kubectl \
	"etcd and Kubernetes $version, once (about four minutes on two cores)"
