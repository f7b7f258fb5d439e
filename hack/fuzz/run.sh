#!/bin/sh
# Runs every function of functions.rs, or the given ones, on RUNS inputs, guided by code coverage. The corpus is kept in
# target/fuzz/. A failing input is printed with its file: add it to the seeds.
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/../../target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
# Coverage for libFuzzer. With --target it does not apply to build scripts, which are not linked with the fuzzer.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
cargo build --release --quiet --target "$host" --target-dir "$target"

[ $# -gt 0 ] || set -- seeds/*
for function in "$@"; do
	function=${function##*/}
	found=$target/corpus/$function
	log=$target/$function.log
	mkdir -p "$found"
	FUZZ=$function "$target/$host/release/fuzz" -runs="${RUNS:-1000000}" -max_len=2048 -timeout=10 -print_funcs=0 \
		-artifact_prefix="$target/$function-" "$found" "seeds/$function" >"$log" 2>&1 || {
		tail -n 50 "$log" >&2
		exit 1
	}
	echo "$function: $(grep -E '\bDONE\b|^Done' "$log" | tr -s '\n\t ' ' ')"
done
