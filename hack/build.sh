#!/bin/sh
# Builds a release binary, with the arguments of `cargo build`: the same commit and toolchain give the same bytes,
# wherever the checkout, cargo's folder and the toolchain are. CCM_OPERATOR_COMMIT names the commit where git is missing.
#   PROGRAM  ccm-operator, the default, ccm-cloud or docker-cloud-controller-manager. Each is built alone, because cargo gives
#            everything that it builds at once the same features of their dependencies.
set -eu
case ${PROGRAM:-ccm-operator} in
ccm-operator) package=cloud-controller-manager-operator ;;
# A driver that panics has to be a result of its checks, and not the end of the program.
ccm-cloud) package=ccm-cloud; export CARGO_PROFILE_RELEASE_PANIC=unwind ;;
# A panic ends the process, so that it is restarted: half a cloud-controller-manager would hold the lease and do nothing.
docker-cloud-controller-manager) package=ccm-cloud-controller-manager ;;
*) echo "hack/build.sh: there is no program $PROGRAM: name ccm-operator, ccm-cloud or docker-cloud-controller-manager" >&2; exit 2 ;;
esac
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
# It takes the tables for unwinding away.
[ "$package" = ccm-cloud ] || export CCM_OPERATOR_LINKER_SCRIPT="$PWD/hack/sections.ld"
export CCM_OPERATOR_COMMIT="${CCM_OPERATOR_COMMIT:-$(hack/commit.sh)}"
exec cargo build --release --locked --package "$package" "$@"
