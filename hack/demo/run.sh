#!/bin/sh
# `make demo`: builds the control plane beside the operator and the demo, says every ten seconds how long each takes, and starts the
# demo.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
tmp=$(mktemp -d)
started=$(date +%s)
elapsed() { echo "$(($(date +%s) - started)) s"; }
say() { echo "make demo: $*, after $(elapsed)" >&2; }

ticker=
plane=
# Nothing that was started here outlives this script.
stop() {
	[ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
	[ -z "$plane" ] || kill -- "-$plane" 2>/dev/null || true
	rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT TERM

# A process group, so that its children end with it.
setsid sh -c 'hack/testplane/build.sh plane >"$1" && hack/testplane/build.sh crds >/dev/null' sh "$tmp/plane" &
plane=$!
CCM_OPERATOR_COMMIT="${CCM_OPERATOR_COMMIT:-$(hack/commit.sh)}" cargo build --locked --profile demo \
	--package cloud-controller-manager-operator --bin ccm-operator --package ccm-demo --bin ccm-demo
say "the operator and the demo are built"
if kill -0 "$plane" 2>/dev/null; then
	while sleep 10; do say "still building the control plane"; done &
	ticker=$!
fi
wait "$plane"
plane=
[ -z "$ticker" ] || kill "$ticker"
ticker=
say "the control plane is there"
programs=$(cat "$tmp/plane")
OPERATOR="$target/demo/ccm-operator" KUBEBUILDER_ASSETS="$programs" "$target/demo/ccm-demo"
