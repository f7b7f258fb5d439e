#!/bin/sh
# Builds the control plane of the tests once and prints the folder that holds etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl: a cache folder outside the checkout, keyed by the
# version and a hash of the sources.
# KUBEBUILDER_ASSETS, when set, is printed instead and nothing is built.
# `build.sh v1.37.2` builds that version of Kubernetes and not the one of go.mod, whatever KUBEBUILDER_ASSETS is.
# `build.sh plane` prints a folder with the programs of a control plane only, those of the demo, which take less time to build. It finds
# them where the whole is built already, and where setup-envtest has put its own, which lack kube-controller-manager and
# kube-scheduler.
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

case ${1:-} in "" | plane) ;; *) unset KUBEBUILDER_ASSETS ;; esac
if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	echo "$KUBEBUILDER_ASSETS"
	exit 0
fi

part=
if [ "${1:-}" = plane ]; then
	part=plane
	shift
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
	cp main.go node.go "$1"
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
	go_build "$1/testplane" "-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" ${part:+-tags plane} .
	rm -rf "$1/module"
	names="etcd kube-apiserver kube-controller-manager kube-scheduler"
	[ -n "$part" ] || names="$names kubelet kubeadm kubectl"
	for name in $names; do
		ln -s testplane "$1/$name"
	done
}

key=$version-$(key_of go.mod go.sum main.go node.go build.sh)
if [ -n "$part" ]; then
	whole=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/testplane/$key
	# The newest one; older API servers have no MutatingAdmissionPolicy.
	envtest=$(printf '%s\n' "${XDG_DATA_HOME:-$HOME/.local/share}"/kubebuilder-envtest/k8s/1.3[4-9].*/ | sort --version-sort | tail -n 1)
	for folder in "$whole" "${envtest%/}"; do
		if [ -x "$folder/kube-apiserver" ] && [ -x "$folder/etcd" ]; then
			echo "hack/testplane: using the programs in $folder" >&2
			echo "$folder"
			exit 0
		fi
	done
	build_once hack/testplane "$purpose" "$key-plane" kube-scheduler "etcd and the control plane of Kubernetes $version, once"
	exit 0
fi
build_once hack/testplane "$purpose" "$key" kubectl "etcd and Kubernetes $version, once (about five minutes on two cores)"
