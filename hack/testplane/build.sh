#!/bin/sh
# Builds the control plane of the tests once and prints the folder that holds etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl: a cache folder outside the checkout, keyed by the
# version and a hash of the sources.
# KUBEBUILDER_ASSETS, when set, is printed instead and nothing is built.
# `build.sh v1.37.2` builds that version of Kubernetes and not the one of go.mod, whatever KUBEBUILDER_ASSETS is.
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

if [ $# = 0 ] && [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	echo "$KUBEBUILDER_ASSETS"
	exit 0
fi

pinned=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' go.mod | head -n 1)
version=${1:-$pinned}
case $version in
v1.[0-9]*.[0-9]*) ;;
*)
	echo "hack/testplane/build.sh: $version is not a version of Kubernetes: name it as its module does, such as $pinned" >&2
	exit 2
	;;
esac

# The module of another version: every dependency as that Kubernetes names it. The modules of its own repository have no version
# there; they are published as v0 with the same minor and patch. The checksum database stands for go.sum.
module_in() { # folder
	cp main.go "$1"
	cd "$1"
	go mod init testplane
	requirements=$(go list -m -f '{{.GoMod}}' "k8s.io/kubernetes@$version")
	sed -En "s,^[[:space:]]*(k8s.io/[a-z-]+) v0\.0\.0( .*)?\$,-replace=\1=\1@v0${version#v1},p" "$requirements" |
		xargs go mod edit "-require=k8s.io/kubernetes@$version"
	go get .
}

build_into() {
	minor=${version#v1.}
	minor=${minor%%.*}
	package=k8s.io/component-base/version
	if [ "$version" != "$pinned" ]; then
		mkdir "$1/module"
		module_in "$1/module" >&2
	fi
	# Without a version the API server reports v0.0.0 and clients stumble over it.
	go_build "$1/testplane" "-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" .
	rm -rf "$1/module"
	for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubeadm kubectl; do
		ln -s testplane "$1/$name"
	done
}

build_once hack/testplane "$purpose" "$version-$(key_of go.mod go.sum main.go build.sh)" kubectl \
	"etcd and Kubernetes $version, once (about five minutes on two cores)"
