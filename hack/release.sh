#!/bin/sh
# What a release consists of beside the images, as files in target/release-artifacts: of each program the binary for this
# architecture, the lists of what is compiled into it and of what is in its image (SBOM, CycloneDX) and, of everything that is there,
# SHA256SUMS.
#   release.sh build   builds the binaries and writes them there, each with its SBOM
#                      TAG, when set, has to be that of the version
#   release.sh sums    packages the Helm chart, makes the lists of what is in the images, and writes SHA256SUMS; needs jq
#   release.sh cosign  builds the signing program, which the commands below use, into target/release-cosign: COSIGN is its path
#   release.sh sign    signs SHA256SUMS: without a key by the identity of the workflow that runs this, or with that of COSIGN_KEY
#   release.sh verify  checks the signature, as users do, and the sums: SIGNER is the address of the repository whose workflow
#                      has signed, for the tag of the version in Cargo.toml; COSIGN_PUB the public half of a key
#   release.sh push    builds an image of PROGRAM (ccm-operator, the default, or another one) for each architecture and pushes them as
#                      one to IMAGE, signed, each with the list of its contents; adds the name of the image with its digest to
#                      target/release-images.txt; needs podman, skopeo and jq
set -eu
cd "$(dirname "$0")/.."
artifacts=target/release-artifacts
programs="ccm-operator ccm-cloud docker-cloud-controller-manager"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

fail() { echo "hack/release.sh: $*" >&2; exit 1; }
mkdir -p "$artifacts"

# Builds the signing program from its sources, which Go's checksum database vouches for, and prints its path.
build_cosign() {
	bin=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/tools/cosign-2.6.5
	[ -x "$bin/cosign" ] || CGO_ENABLED=0 GOBIN=$bin go install -trimpath github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5 >&2
	echo "$bin/cosign"
}

cosign() {
	COSIGN=${COSIGN:-$(build_cosign)}
	"$COSIGN" "$@"
}

case ${1:-} in
build)
	[ "${TAG:-v$version}" = "v$version" ] || fail "the tag $TAG is not that of the version $version in Cargo.toml"
	case $(hack/commit.sh) in
	unknown | *-dirty) fail "a release is built from a commit: this is $(hack/commit.sh)" ;;
	esac
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) fail "there are no releases for $(uname -m)" ;;
	esac
	for program in $programs; do
		PROGRAM=$program hack/build.sh
		hack/glibc.sh "target/release/$program"
		install -m 755 "target/release/$program" "$artifacts/$program-$version-linux-$arch"
	done
	# With a time that is the commit's, so that the same commit gives the same file.
	PATH="$(hack/tool.sh cargo-cyclonedx 0.5.9):$PATH" SOURCE_DATE_EPOCH=$(hack/commit.sh time) \
		cargo cyclonedx --format json --spec-version 1.5 --describe binaries
	# The lists stand beside the manifests of the packages, also of those that are not released.
	lists() { find . -path ./target -prune -o -name "$1_bin.cdx.json" -print; }
	for program in $programs; do
		# The place of the checkout is nobody's business, and would make the file another each time.
		sed "s|file://$PWD|file:///ccm-operator|g" "$(lists "$program")" >"$artifacts/$program-$version-linux-$arch.cdx.json"
	done
	lists '*' | xargs rm
	;;
sums)
	files=ccm-operator-$version.tgz
	for program in $programs; do
		for arch in amd64 arm64; do
			name=$program-$version-linux-$arch
			[ -f "$artifacts/$name" ] || continue
			hack/image-contents.sh "$artifacts/$name.cdx.json" >"$artifacts/$name.image.cdx.json"
			files="$files $name $name.cdx.json $name.image.cdx.json"
		done
		case $files in
		*" $program-"*) ;;
		*) fail "there are no artifacts of $program $version in $artifacts: run hack/release.sh build first" ;;
		esac
	done
	"$(hack/helm/build.sh)/helm" package charts/ccm-operator --destination "$artifacts" >/dev/null
	# shellcheck disable=SC2086 # a list
	(cd "$artifacts" && sha256sum $files >SHA256SUMS)
	;;
cosign)
	install -D -m 755 "$(build_cosign)" target/release-cosign/cosign
	;;
sign)
	if [ -n "${COSIGN_KEY:-}" ]; then
		# A key is for trying this: its signatures go to no public log.
		cosign sign-blob --yes --key "$COSIGN_KEY" --tlog-upload=false --bundle "$artifacts/SHA256SUMS.sigstore.json" "$artifacts/SHA256SUMS"
	else
		cosign sign-blob --yes --new-bundle-format --bundle "$artifacts/SHA256SUMS.sigstore.json" "$artifacts/SHA256SUMS"
	fi
	;;
verify)
	if [ -n "${COSIGN_PUB:-}" ]; then
		cosign verify-blob --key "$COSIGN_PUB" --insecure-ignore-tlog --bundle "$artifacts/SHA256SUMS.sigstore.json" "$artifacts/SHA256SUMS"
	else
		cosign verify-blob --new-bundle-format --bundle "$artifacts/SHA256SUMS.sigstore.json" \
			--certificate-identity "${SIGNER:?is the address of the repository}/.github/workflows/release.yaml@refs/tags/v$version" \
			--certificate-oidc-issuer https://token.actions.githubusercontent.com "$artifacts/SHA256SUMS"
	fi
	(cd "$artifacts" && sha256sum --check --strict SHA256SUMS)
	;;
push)
	program=${PROGRAM:-ccm-operator}
	images=
	for arch in amd64 arm64; do
		binary=$artifacts/$program-$version-linux-$arch
		for file in "$binary" "$binary.image.cdx.json"; do
			[ -f "$file" ] || fail "$file is missing: an image is pushed for all architectures, after hack/release.sh sums"
		done
		images="$images $(CONTAINER_TOOL=podman IMAGE=${IMAGE:?is the name in the registry}-$arch hack/image.sh "$binary" \
			--no-cache --timestamp "$(hack/commit.sh time)" --platform "linux/$arch")"
	done
	# shellcheck disable=SC2086 # a list
	podman manifest create "$IMAGE" $images
	# Not among the artifacts: what users get is in SHA256SUMS, which is signed already.
	podman manifest push --all --digestfile target/release-image.digest "$IMAGE" "docker://$IMAGE"
	# By its digest: a tag may move.
	name=${IMAGE%:*}
	digest=$(cat target/release-image.digest)
	cosign sign --yes "$name@$digest"
	# A repeated push has one line.
	touch target/release-images.txt
	sed -i "/^Image of $program: /d" target/release-images.txt
	echo "Image of $program: \`$IMAGE@$digest\`" >>target/release-images.txt
	# Each list belongs to the image of its architecture, whose digest the registry knows: layers are compressed by the push.
	index=$(skopeo inspect --raw "docker://$name@$digest")
	for arch in amd64 arm64; do
		digest=$(printf '%s' "$index" | jq --raw-output --exit-status --arg arch "$arch" \
			'.manifests[] | select(.platform.architecture == $arch).digest')
		cosign attest --yes --type cyclonedx --predicate "$artifacts/$program-$version-linux-$arch.image.cdx.json" "$name@$digest"
	done
	;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
