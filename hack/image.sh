#!/bin/sh
# Builds the container image of a program from its binary: `image.sh BINARY [ARGUMENT of the build…]`.
#   PROGRAM         ccm-operator, the default, ccm-cloud or docker-cloud-controller-manager
#   CONTAINER_TOOL  podman, docker or buildah; by default the first of them that is installed
#   IMAGE           the image's name, by default localhost/PROGRAM:<version>
#   IMAGE_SOURCE    the address of the sources for its labels, by default that of the git remote "origin"
set -eu
binary=$(realpath "$1")
shift
program=${PROGRAM:-ccm-operator}
cd "$(dirname "$0")/.."
for tool in ${CONTAINER_TOOL:-podman docker buildah}; do
	command -v "$tool" >/dev/null && break
	tool=
done
[ -n "$tool" ] || { echo "hack/image.sh: ${CONTAINER_TOOL:-podman, docker or buildah} is missing: install one of them" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
image=${IMAGE:-localhost/$program:$version}

# A remote's address may be a path, or hold a password.
source=${IMAGE_SOURCE:-$(git config --get remote.origin.url | sed -n 's|^https://\([^@]*@\)*\([^@]*\)$|https://\2|p')}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
hack/image-root.sh "$binary" "$root/image"
"$tool" build --file Containerfile --target "$program" --tag "$image" \
	--build-arg VERSION="$version" \
	--build-arg REVISION="${CCM_OPERATOR_COMMIT:-$(hack/commit.sh)}" \
	--build-arg SOURCE="${source:-unknown}" \
	"$@" "$root/image" >&2
echo "$image"
