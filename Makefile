# make test     everything that CI checks of behavior: unit tests and tests on a real control plane
# make test-list-watch  the tests that depend on watches, on API servers that list and then watch, as before Kubernetes 1.34
# make test-faults  every fault that a cluster may have, some for minutes
# make build    the programs, target/release/{ccm-operator,ccm-cloud,docker-cloud-controller-manager}; so does make alone
# make image    the container image of the operator, by podman or docker; BUILD_ARGS=… for arguments of its build; PROGRAM=ccm-cloud or docker-cloud-controller-manager for the other images
# make e2e      the images and drivers in a Docker Engine of its own, in namespaces of its own, and the life of a node of real kubelets; needs root
# make test-reasons  reasons why nodes wait, and the loss of all nodes, with the real cloud-controller-managers of AWS and vSphere, and ours beside that of AWS
# make e2e-all  the same with the release binaries, rollouts while a machine is dead, a current Docker Engine, make test-reasons, and CloudControllerManagers on other versions of Kubernetes
# make reproducible  builds the binaries and the images twice and compares them
# make release-artifacts  the files of a release, in target/release-artifacts; hack/release.sh signs and verifies them
# make check    format, lints and docs
# make deny     the dependencies' licenses, sources and versions (deny.toml)
# make advisories  whether a vulnerability is known of a dependency; needs the network
# make fuzz     a million inputs, or RUNS=…, for every function that reads untrusted text; needs a C++ compiler
# make mutants  changes of the code that no test notices; hours
# make demo     shows the operator on a real control plane; KEEP=1 leaves it running
# make demo-node  shows the life of a node: real kubelets, the real cloud-controller-manager of AWS, and moto for AWS; needs root
# make demo-docker  shows a cluster whose cloud is Docker: machines made by ccm-cloud, and our own cloud-controller-manager; needs root
# make bench    figures: time, requests, memory, each also with 20 ms of latency; OPERATOR=… measures another binary
# make bench-check  a few starts, compared with hack/bench/figures.json; UPDATE=1 writes it
# make soak     ten thousand passes and an hour of faults in one process: memory, file descriptors; PASSES=…, MINUTES=…
# make crash    kills the operator after each of its requests, not only after each write
# make rbac     the permissions of the operator and of our own cloud-controller-manager that no test has used
# make lines    how many lines the product has, without its tests
# make generate generated files: image-references, the images ConfigMap, schemas, docs/clouds/*.md, docs/pictures/*.svg, charts/, kustomize/, snapshots
.DEFAULT_GOAL := build
.PHONY: help build image reproducible release-artifacts e2e e2e-all test test-list-watch test-faults test-reasons check deny advisories fuzz mutants demo demo-node demo-docker bench bench-check soak crash rbac lines generate testplane ccm vcsim helm prometheus

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

# One after the other: cargo gives everything that it builds at once the same features of their dependencies.
build:
	PROGRAM=ccm-operator hack/build.sh
	PROGRAM=ccm-cloud hack/build.sh
	PROGRAM=docker-cloud-controller-manager hack/build.sh

image: export PROGRAM ?= ccm-operator
image:
	hack/build.sh
	hack/glibc.sh target/release/$(PROGRAM)
	hack/image.sh target/release/$(PROGRAM) $(BUILD_ARGS)

# They are built once into a cache folder outside the checkout. Building them before the tests shows the progress.
testplane:
	@hack/testplane/build.sh >/dev/null
	@hack/testplane/build.sh crds >/dev/null

ccm:
	@hack/ccm/build.sh >/dev/null
	@hack/ccm/fake/build.sh >/dev/null

vcsim:
	@hack/vcsim/build.sh >/dev/null

helm:
	@hack/helm/build.sh >/dev/null

# Prometheus and promtool from Debian, into the same folder. Elsewhere their tests tell that they are skipped.
prometheus:
	-@hack/debian.sh prometheus >/dev/null

# Tests on a control plane wait more than they compute, so several run at once even on two cores. Not the examples: demo,
# bench, soak and rbac are checked by the lints.
TESTS = --locked --lib --bins --test it
export RUST_TEST_THREADS ?= $(shell nproc | awk '{ print ($$1 > 6) ? $$1 : 6 }')

# Those in which somebody undoes each repair run alone: whether that is a fight depends on how soon the operator repairs.
FIGHTS = contested:: monitoring::scrape::the_problems_of_a_real_operator

# The programs of others are built while the tests that need none of them run; the other tests wait for them. They are a process
# group, so that an interrupt ends all of it.
test: testplane
	@setsid sh -c 'hack/ccm/build.sh && hack/ccm/fake/build.sh && hack/vcsim/build.sh && hack/helm/build.sh && { hack/debian.sh prometheus || true; }' >/dev/null & \
	programs=$$!; trap 'kill -- -$$programs 2>/dev/null; exit 130' INT TERM; set -x; status=0; \
	{ cargo test --locked --doc && cargo test --locked --test processes && cargo test $(TESTS) -- $(FIGHTS:%=--skip %) && \
		cargo test --locked --test it -- --test-threads=1 $(FIGHTS); } || status=$$?; \
	wait $$programs || status=$$?; exit $$status

# What depends on watches once more, on API servers that do not stream lists: the default before Kubernetes 1.34.
test-list-watch: testplane
	WATCH_LIST=false cargo test --locked --test it -- operator:: prune:: recreate:: drift:: faults:: leader:: blind::

test-faults: testplane
	cargo test --locked --test it -- fault_suite:: connections:: --include-ignored

# Four clusters, each with a cloud of its own.
test-reasons: testplane ccm vcsim
	@hack/e2e/moto.sh >/dev/null
	cargo test --locked --test it -- reasons:: nodes:: ccm:: --ignored

reproducible:
	hack/reproducible.sh

release-artifacts:
	hack/release.sh build
	hack/release.sh sums

# Cargo builds the tests, and run.sh runs them where the engine is.
IN_NAMESPACES = cargo --config 'target."cfg(all())".runner = "hack/e2e/run.sh"' test --locked
E2E = $(IN_NAMESPACES) --test e2e

# The other programs are built as make test does it: alone they would have other features, and be compiled again with all below them.
e2e: testplane ccm helm
	cargo test $(TESTS) --no-run
	$(IN_NAMESPACES) --test engine
	$(E2E)

# Besides the one of hack/testplane/go.mod.
OTHER_KUBERNETES = v1.36.3 v1.37.2

# In the namespaces there is no network to build the current Docker Engine with.
e2e-all: testplane ccm helm build test-reasons
	@hack/libvirt/packages.sh >/dev/null
	@hack/moby/build.sh >/dev/null
	OPERATOR=$(CURDIR)/target/release/ccm-operator CCM_CLOUD=$(CURDIR)/target/release/ccm-cloud \
		CLOUD_CONTROLLER_MANAGER=$(CURDIR)/target/release/docker-cloud-controller-manager $(E2E) -- --include-ignored
	for version in $(OTHER_KUBERNETES); do \
		programs=$$(hack/testplane/build.sh "$$version") && \
		KUBEBUILDER_ASSETS=$$programs cargo test --locked --test it -- ccms:: || exit; \
	done

check:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --test e2e -- -D warnings
	cargo clippy --locked --test engine -- -D warnings
	cargo clippy --locked --package ccm-demo -- -D warnings
	cargo check --locked --package ccm-cloud --package ccm-cloud-controller-manager --no-default-features --features docker
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

# Needs the network: the database of known vulnerabilities.
advisories:
	PATH="$$(hack/tool.sh cargo-deny 0.20.2):$$PATH" cargo deny --locked check advisories

deny:
	PATH="$$(hack/tool.sh cargo-deny 0.20.2):$$PATH" cargo deny --locked check bans licenses sources

fuzz:
	hack/fuzz/run.sh

mutants:
	hack/mutants.sh

demo:
	@hack/demo/run.sh

demo-node: testplane ccm helm
	@NARRATE=1 $(E2E) --quiet -- --nocapture life::

demo-docker: testplane ccm helm
	cargo test $(TESTS) --no-run
	@NARRATE=1 $(E2E) --quiet -- --nocapture docker_cloud::a_cluster

# Apart, because the dependencies of the tests would turn on features of those of the operator.
bench: testplane
	hack/build.sh --example bench
	hack/build.sh --bin ccm-operator
	target/release/examples/bench

# Short, and prints only; --update writes the figures of this build into the file. The program that measures is as the tests have
# built it, because none of these figures is its own.
bench-check: testplane
	hack/build.sh --bin ccm-operator
	cargo run --quiet --locked --example bench -- --check hack/bench/figures.json $(if $(UPDATE),--update)

soak: testplane
	hack/build.sh --bin ccm-operator --example soak
	target/release/examples/soak

crash: testplane
	CRASH_EVERY_REQUEST=1 cargo test --locked --test it -- crash::

rbac: testplane ccm vcsim helm prometheus
	rm -f target/audit.log
	CCM_OPERATOR_AUDIT_LOG=$(CURDIR)/target/audit.log cargo test --locked --test it
	cargo run --locked --quiet --example rbac -- target/audit.log

# Of a file with tests at its end what stands before them.
lines:
	@git ls-files 'src/*.rs' 'crates/*.rs' | grep -v '/tests\(\.rs\|/\)' | xargs awk 'FNR == 1 { is_test = 0; last = "" } \
		last == "#[cfg(test)]" && /mod [a-z_]+ \{$$/ { is_test = 1; lines-- } !is_test { lines++ } { last = $$0 } \
		END { print lines }'

# The pages of clouds first, because other tests read them.
generate: testplane ccm vcsim helm prometheus
	cargo run --locked --quiet -- image-references >target/image-references
	mv target/image-references image-references
	cargo run --locked --quiet -- image-references --config-map >target/images.configmap.yaml
	mv target/images.configmap.yaml manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml
	UPDATE_GENERATED=1 cargo test --locked --test it -- pages::
	UPDATE_GENERATED=1 INSTA_UPDATE=always cargo test $(TESTS)
