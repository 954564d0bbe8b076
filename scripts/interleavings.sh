#!/usr/bin/env bash
# Runs code that several threads use in many orders of its threads (docs/internals/simulation.md#orders-of-threads). It is
# built with shuttle's locks, in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

# cargo would prefer it to RUSTFLAGS.
unset CARGO_ENCODED_RUSTFLAGS
export RUSTFLAGS="${RUSTFLAGS-} --cfg shuttle -D warnings"
packages=(-p hsmux-audit -p hsmux-edge -p hsmux-pkcs11 -p hsmux-service -p hsmux-token -p hsmux-wire)
# Dependencies are built in half the time if only those are optimised that run all the time.
profile=(--config 'profile.dev.package."*".opt-level=0')
for hot in shuttle shuttle-engine shuttle-schedulers shuttle-std bitvec corosensei smallvec; do
    profile+=(--config "profile.dev.package.$hot.opt-level=2")
done
cargo test --locked --no-fail-fast --target-dir "${CARGO_TARGET_DIR:-target}/shuttle" "${profile[@]}" \
    "${packages[@]}" --lib interleavings |
    awk '{ print } / 0 passed;/ { none = 1 } END { if (none) { print "A crate has no such test, or none passed."; exit 1 } }'
