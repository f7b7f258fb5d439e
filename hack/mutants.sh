#!/bin/sh
# Mutation tests: changes the code on purpose and reports the changes that no test notices. All mutants of the facts, the
# plan and the steps of an apply, and a sample of the rest.
#   SAMPLE   how many mutants of the rest, 200 by default
#   SEED     which ones: the same seed chooses the same mutants of the same code
# No mutant is tested on a control plane: that takes minutes.
set -eu
cd "$(dirname "$0")/.."
sample=${SAMPLE:-200}
seed=${SEED:-1}
whole='^crates/core/src/(facts|plan)[./]|^src/apply/(steps|change|diff|inventory|ownership)[./]'

PATH=$(hack/tool.sh cargo-mutants 27.1.0):$PATH
export PATH
list=target/mutants.list
mkdir -p target
cargo mutants --list --colors never >"$list.all"
grep -E "$whole" "$list.all" >"$list" || true
# Sorted by a digest of seed and mutant: a sample that changes little when the code does.
grep -vE "$whole" "$list.all" | while IFS= read -r mutant; do
	printf '%s %s\n' "$(printf '%s %s' "$seed" "$mutant" | cksum | cut -d ' ' -f 1)" "$mutant"
done | sort -n | cut -d ' ' -f 2- | head -n "$sample" >>"$list"
echo "$(wc -l <"$list") of $(wc -l <"$list.all") mutants" >&2

# Each as a regular expression that matches exactly this mutant. cargo-mutants 27.1 tests the mutants that delete a field of a
# struct expression besides, whatever is asked for.
sed -E 's/[][\\.*+?(){}|^$]/\\&/g; s/.*/^&$/' "$list" >"$list.re"
set --
while IFS= read -r mutant; do set -- "$@" --re "$mutant"; done <"$list.re"

mutate() {
	cargo mutants --no-shuffle --colors never --output target "$@"
}

# First the unit tests alone, which take seconds; exit code 2: mutants are left.
mutate --timeout 60 "$@" -- --locked --lib || [ $? = 2 ]

# Then, for the mutants that are left, the tests of the program as well, except those that need a control plane. Each by its
# full name: a module's name alone may be one of the library's.
skipped=$(
	modules=$(grep -lE 'Lab::|pool::lease|ControlPlane::start|Stage::' tests/it/*.rs | sed 's|.*/||; s|\.rs$||' | paste -sd '|')
	cargo test --locked --quiet --test it -- --list 2>/dev/null | sed -n 's/: test$//p' | grep -E "^($modules)::" | sed 's/^/--skip /'
)
# shellcheck disable=SC2086
mutate --iterate --timeout 300 "$@" -- --locked --lib --bins --test it -- $skipped
