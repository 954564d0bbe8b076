#!/usr/bin/env bash
# Checks format, lints and dependencies, builds, and runs every test; the last line is 'N passed, N failed'.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUST_BACKTRACE=${RUST_BACKTRACE:-0} CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# A registry may fail for a moment.
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-10}

step() {
    local start=$SECONDS
    echo
    echo "== $1"
    shift
    local result=0
    "$@" || result=$?
    echo "   ($((SECONDS - start)) s)"
    return "$result"
}

component() {
    cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2" || {
        echo "cargo $1 is missing and rustup cannot install it: rustup component add $2" >&2
        exit 1
    }
}

# Without advisories: their database is a git repository outside the package registries.
dependencies() {
    cargo deny --version >/dev/null 2>&1 || {
        echo "cargo-deny is missing; building it takes some minutes, once"
        cargo install --locked --quiet --debug --version 0.20.2 cargo-deny
    }
    cargo deny --all-features check bans licenses sources
}

# Most tests wait for other processes. Two at a time, the default on two CPUs, leave the CPUs idle.
threads=$(nproc)
[ "$threads" -ge 4 ] || threads=4
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$threads}

tests() {
    export HSMUX_BUILT="${CARGO_TARGET_DIR:-$PWD/target}/debug"
    cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
}

orders_of_threads() {
    scripts/interleavings.sh 2>&1 | tee -a "$log"
}

# From the log: for each failed target a line with the command that repeats it, and the names of its failed tests.
# The command builds the whole workspace: a single package has other features of its dependencies.
failures() {
    awk '/^failures:$/ { names = "" }
         /^    [a-z_0-9:]+$/ { names = names " " $1 }
         /^error: (test|doctest) failed, to rerun pass/ { split($0, part, "`"); sub(/^-p [^ ]+/, "--workspace", part[2])
                                                          print part[2] " -- --exact" names; names = "" }' "$log"
}

# Repeats a few failed tests alone. One that then passes is flaky: a bug to fix, reported at the end, but no failure.
# A target that crashed has no names, and is not repeated.
again() {
    local target words
    [ "$(failures | wc -l)" -gt 0 ] && [ "$(failures | sed 's/.* --exact//' | wc -w)" -le "$most_again" ] || return 1
    while read -r target; do
        read -ra words <<<"$target"
        [ "${words[-1]}" != --exact ] || return 1
        echo "Again: $target"
        cargo test --locked "${words[@]}" </dev/null || return 1
        unsteady+=("${target#*--exact }")
    done < <(failures)
}
most_again=2
unsteady=()

component fmt rustfmt
component clippy clippy
step "Format" cargo fmt --all --check
step "Lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "Borders, licences and sources of the dependencies" dependencies
# With the tests: without them dependencies have other features, and would be built twice.
step "Build" cargo build --workspace --locked --quiet --lib --bins --tests
result=0
step "Tests" tests || result=$?
if [ "$result" -ne 0 ] && step "Tests that failed, once more" again; then result=0; fi
step "Orders of threads" orders_of_threads || result=$?

# Once more near the end, because whoever reads a long log begins there: what each failed test said.
if [ "$result" -ne 0 ]; then
    awk '/ panicked at / { left = 12; print "" } left > 0 && NF { print substr($0, 1, 400); left-- }' "$log"
fi

# The last line, with the sums of all test programs, including doc tests.
awk -v unsteady="$(wc -w <<<"${unsteady[*]}")" '/^test result:/ { passed += $4; failed += $6 }
    END { printf "\n%d passed, %d failed\n", passed + unsteady, failed - unsteady }' "$log"
[ "$result" -ne 0 ] || [ ${#unsteady[@]} -eq 0 ] || echo "UNSTEADY, passed the second time only: ${unsteady[*]}"
exit "$result"
