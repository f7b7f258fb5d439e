#!/bin/sh
# Fills a folder with what the image adds to its base: `image-root.sh BINARY FOLDER`. Owners aside, the same commit gives the
# same files: modes do not depend on the umask, and times are the commit's. PROGRAM is ccm-operator, the default,
# ccm-cloud or docker-cloud-controller-manager.
set -eu
binary=$(realpath "$1")
root=$2
program=${PROGRAM:-ccm-operator}
time=${SOURCE_DATE_EPOCH:-$("$(dirname "$0")/commit.sh" time)}
rm -rf "$root"
mkdir -p "$root"
root=$(realpath "$root")
cd "$(dirname "$0")/.."
install -D -m 755 "$binary" "$root/usr/bin/$program"
if [ "$program" = ccm-operator ]; then
	# The names and places of the Go operator's programs: its Deployment runs with only the image replaced.
	for name in cluster-controller-manager-operator config-sync-controllers azure-config-credentials-injector; do
		ln -s usr/bin/ccm-operator "$root/$name"
	done
	# What a release payload takes from the image.
	install -d -m 755 "$root/manifests"
	install -m 644 manifests/* "$root/manifests"
fi
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch --no-dereference --date="@$time" {} +
