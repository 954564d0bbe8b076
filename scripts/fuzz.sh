#!/usr/bin/env bash
# Runs the fuzz targets one after the other, for TIME seconds or RUNS executions each: all, or only TARGET.
# Failing inputs are in fuzz/artifacts/TARGET, new corpus entries in CORPUS (fuzz/corpus).
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.13.2
time=${TIME:-60} runs=${RUNS:--1}
[ -z "${RUNS:-}" ] || time=${TIME:-0}
corpus=${CORPUS:-fuzz/corpus}

cargo +nightly --version >/dev/null 2>&1 || {
    echo "Sanitizers need a nightly toolchain: rustup toolchain install nightly --profile minimal" >&2
    exit 1
}
cargo fuzz --version 2>/dev/null | grep -qx "cargo-fuzz $version" || {
    echo "cargo-fuzz $version is missing; building it takes a minute, once"
    cargo install --locked --quiet --debug --version "$version" cargo-fuzz
}

# The usual length of inputs: a frame, a file, a line.
longest() {
    case $1 in
    configuration | journal | audit_lines | jwk) echo 4096 ;;
    direct | service_events | service_packets) echo 2048 ;;
    calls | replies | cvc | key_blobs | dkek_files | batches | jws) echo 1024 ;;
    *) echo 512 ;;
    esac
}

cargo +nightly fuzz build ${TARGET:+"$TARGET"}
for target in ${TARGET:-$(ls fuzz/seeds)}; do
    echo "== $target"
    mkdir -p "$corpus/$target" "fuzz/artifacts/$target"
    # No single allocation is much longer than an input: a frame may take 16 MB.
    cargo +nightly fuzz run "$target" "$corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$time" -runs="$runs" -max_len="$(longest "$target")" -len_control=20 \
        -malloc_limit_mb=16 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1
done
