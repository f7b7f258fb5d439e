# make test     everything that CI checks of behaviour: unit tests and tests on a real control plane
# make check    format, lints and docs
# make fuzz     a million inputs, or RUNS=…, for every function that takes text of others; needs a C++ compiler
# make demo     the operator at work on a real control plane; KEEP=1 leaves it running
# make bench    figures: time, requests, memory, each also with 20 ms of latency
# make crash    the operator killed after each of its requests, not only after each write
# make rbac     which rights of the operator no test needed
# make generate what is generated: image-references and the images ConfigMap, docs/provider.schema.json, snapshots
.DEFAULT_GOAL := build
.PHONY: build test check fuzz demo bench crash rbac generate testplane ccm

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

fuzz:
	hack/fuzz/run.sh

demo: build testplane
	cargo run --locked --quiet --example demo

bench: build testplane
	cargo run --locked --quiet --example bench

crash: testplane
	CRASH_EVERY_REQUEST=1 cargo test --locked --test it -- crash::

rbac: testplane ccm
	CCM_OPERATOR_AUDIT_LOG=$(CURDIR)/target/audit.log cargo test --locked --test it
	cargo run --locked --quiet --example rbac -- target/audit.log

generate:
	cargo run --locked --quiet -- image-references >target/image-references
	mv target/image-references image-references
	cargo run --locked --quiet -- image-references --config-map >target/images.configmap.yaml
	mv target/images.configmap.yaml manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml
	UPDATE_GENERATED=1 INSTA_UPDATE=always cargo test --locked
