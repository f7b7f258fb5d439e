# make test     everything that CI checks of behaviour: unit tests and tests on a real control plane
# make check    format, lints and docs
# make demo     the operator at work on a real control plane; KEEP=1 leaves it running
# make bench    figures: time, requests, memory, each also with 20 ms of latency
# make generate what is generated from the sources (docs/provider.schema.json, snapshots)
.DEFAULT_GOAL := build
.PHONY: build test check demo bench generate testplane ccm

build:
	cargo build --release --locked

# Both are built once into a cache folder outside of the checkout; building them first shows the progress.
testplane:
	@hack/testplane/build.sh >/dev/null
	@hack/testplane/build.sh crds >/dev/null

ccm:
	@hack/ccm/build.sh >/dev/null

test: testplane ccm
	cargo test --locked

check:
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

demo: build testplane
	cargo run --locked --quiet --example demo

bench: build testplane
	cargo run --locked --quiet --example bench

generate:
	UPDATE_GENERATED=1 INSTA_UPDATE=always cargo test --locked
