#!/bin/sh
# Builds the release binary, with the arguments of `cargo build`: the same commit and toolchain give the same bytes,
# wherever the checkout, cargo's folder and the toolchain are. CCM_OPERATOR_COMMIT names the commit where git is missing.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
toolchain=$(rustc --print sysroot)
# The standard library's own name for its sources, which rustc replaces where they are installed.
rust=/rustc/$(rustc --version --verbose | sed -n 's/^commit-hash: //p')
# The later ones win. In this form paths may have blanks.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\037' \
	"--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
	"--remap-path-prefix=$toolchain/lib/rustlib/src/rust=$rust" \
	"--remap-path-prefix=$PWD=/ccm-operator" \
	"--remap-path-prefix=$target=/target" | sed 's/.$//')
export CARGO_ENCODED_RUSTFLAGS
export CCM_OPERATOR_LINKER_SCRIPT="$PWD/hack/sections.ld"
export CCM_OPERATOR_COMMIT="${CCM_OPERATOR_COMMIT:-$(hack/commit.sh)}"
exec cargo build --release --locked "$@"
