#!/bin/bash
# Builds the commit twice, from clean checkouts in different folders with other cargo folders, umasks and time zones, and
# fails if the binaries or the images of a program differ. Prints their digests. It takes twice as long as a release build.
set -euo pipefail
programs="ccm-operator ccm-cloud docker-cloud-controller-manager"
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "hack/reproducible.sh: buildah keeps the owners of files: run this as root" >&2; exit 1; }
base=$(hack/e2e/base.sh)
debian=$(hack/debian.sh buildah libgpgme11 libassuan0 libdevmapper1.02.1)
# On disk: two target folders are large.
work=$(mktemp -d /var/tmp/ccm-operator-reproducible-XXXXXX)
trap 'rm -rf "$work"' EXIT

# Only by its storage does buildah know of other images: this is its own.
cat >"$work/storage.conf" <<END
[storage]
driver = "vfs"
graphroot = "$work/images"
runroot = "$work/run"
END
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
cat >"$work/buildah" <<END
#!/bin/sh
export LD_LIBRARY_PATH="$debian/usr/lib/$(uname -m)-linux-gnu:$debian/lib/$(uname -m)-linux-gnu"
export CONTAINERS_STORAGE_CONF="$work/storage.conf" BUILDAH_ISOLATION=chroot
command=\$1
shift
exec "$debian/usr/bin/buildah" "\$command" \$([ "\$command" != build ] || echo "--signature-policy $work/policy.json") "\$@"
END
chmod 755 "$work/buildah"
buildah=$work/buildah

mkdir "$work/base"
ln "$base" "$work/base/base.tar" 2>/dev/null || cp "$base" "$work/base/base.tar"
printf 'FROM scratch\nADD base.tar /\n' >"$work/base/Containerfile"
"$buildah" build --timestamp 0 --tag localhost/base "$work/base" >&2

build() { # checkout, tag
	git clone --quiet . "$1"
	for PROGRAM in $programs; do
		export PROGRAM
		"$1/hack/build.sh" >&2
		(
			cd "$1"
			CONTAINER_TOOL=$buildah IMAGE=localhost/$PROGRAM-$2 hack/image.sh "target/release/$PROGRAM" \
				--no-cache --timestamp "$(hack/commit.sh time)" \
				--build-arg BASE=localhost/base --build-arg CERTIFICATES=localhost/base
		)
	done
}
digest() { "$buildah" inspect --type image --format '{{.FromImageDigest}}' "localhost/$1"; }

build "$work/one" one
(
	umask 027
	mkdir -p "$work/another/cargo"
	ln -s "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/another/cargo/registry"
	export CARGO_HOME=$work/another/cargo TZ=Pacific/Kiritimati
	build "$work/another/checkout" another
)
for program in $programs; do
	one=$work/one/target/release/$program another=$work/another/checkout/target/release/$program
	sha256sum "$one" "$another"
	cmp "$one" "$another"
	echo "image: $(digest "$program-one")"
	echo "image: $(digest "$program-another")"
	[ "$(digest "$program-one")" = "$(digest "$program-another")" ] ||
		{ echo "hack/reproducible.sh: the images of $program differ" >&2; exit 1; }
	ls -l "$one"
	"$buildah" inspect --type image --format '{{.OCIv1.Config.Labels}}' "localhost/$program-one"
	echo
done
echo "the same commit gives the same binaries and the same images"
