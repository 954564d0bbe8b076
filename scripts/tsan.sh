#!/usr/bin/env bash
# Runs the tests of wire and pool under the thread sanitizer, with a rebuilt standard library, since uninstrumented
# locks look like races. Tests that load SoftHSM are excluded, because it is not instrumented.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-gnu
sysroot=$(rustc +nightly --print sysroot 2>/dev/null) || {
    echo "Sanitizers need a nightly toolchain: rustup toolchain install nightly --profile minimal" >&2
    exit 1
}
[ -d "$sysroot/lib/rustlib/src/rust/library" ] || {
    echo "The standard library's source is missing: rustup component add rust-src --toolchain nightly" >&2
    exit 1
}

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/tsan
export RUSTFLAGS="-Zsanitizer=thread"
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp ${TSAN_OPTIONS:-}"
tsan() { cargo +nightly test --locked -Zbuild-std --target "$target" "$@"; }

# Short operations share a frame, and workers serve programs directly. With the sanitizer none are short.
wire() { tsan -p hsmux-wire --lib --tests -- --skip only_a_pool_that_knows_shared_frames_gets_them; }
pool() { tsan -p hsmux-pool --lib --test pool -- --skip connections_of_programs_end_when_their_worker_is_replaced; }

case ${1:-all} in
wire) wire ;;
pool) pool ;;
all) wire && pool ;;
*) echo "tsan.sh [wire|pool]" >&2; exit 1 ;;
esac
