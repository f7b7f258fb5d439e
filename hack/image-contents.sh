#!/bin/sh
# The list of what is in an image (SBOM, CycloneDX), made of that of its binary: `image-contents.sh BINARY.cdx.json`. The images of
# Containerfile that the rest comes from are in it by their digests; what they contain stands in their own lists.
set -eu
list=$(realpath "$1")
cd "$(dirname "$0")/.."
base() { sed -n "s/^ARG $1=//p" Containerfile; }
exec jq --arg base "$(base BASE)" --arg certificates "$(base CERTIFICATES)" '
	def image($use): (capture("^(?<name>[^@]+):(?<tag>[^:@]+)@(?<digest>sha256:(?<hex>[0-9a-f]{64}))$")
		| {type: "container", name: .name, version: .digest, description: $use, hashes: [{alg: "SHA-256", content: .hex}]});
	.components += [($base | image("the base of the image")), ($certificates | image("the certificates that the image trusts"))]
' "$list"
