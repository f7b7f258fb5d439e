#!/bin/sh
# Builds the control plane of the tests once and prints the folder that holds etcd, kube-apiserver,
# kube-controller-manager and kube-scheduler: a cache folder outside the checkout, keyed by a hash of the sources.
# KUBEBUILDER_ASSETS, when set, is printed instead and nothing is built.
# `build.sh crds` prints the folder of OpenShift's API module, whose CRDs the tests install.
set -eu
cd "$(dirname "$0")"

need_go() {
	command -v go >/dev/null 2>&1 && return
	echo "hack/testplane: the Go toolchain is missing: install Go 1.25 or newer (https://go.dev/doc/install), it builds the control plane that the tests run against" >&2
	exit 1
}

if [ "${1:-}" = crds ]; then
	need_go
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

key=$(cat go.mod go.sum main.go build.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/testplane
out=$cache/$key
if [ ! -x "$out/kube-apiserver" ]; then
	need_go
	version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' go.mod | head -n 1)
	minor=${version#v1.}
	minor=${minor%%.*}
	package=k8s.io/component-base/version
	echo "hack/testplane: building etcd and Kubernetes $version, once (about four minutes on two cores) ..." >&2
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/.build-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# Without a version the API server reports v0.0.0 and clients stumble over it.
	CGO_ENABLED=0 go build -mod=readonly -trimpath -o "$tmp/testplane" -ldflags "-s -w \
		-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" .
	for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
		ln -s testplane "$tmp/$name"
	done
	# A rename is atomic: two builds at once both end well, and a broken one leaves nothing that looks whole.
	chmod 755 "$tmp"
	mv -T "$tmp" "$out" 2>/dev/null || [ -x "$out/kube-apiserver" ]
	echo "hack/testplane: built $out" >&2
fi
echo "$out"
