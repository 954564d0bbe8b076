#!/usr/bin/env bash
# The figures of the README, side by side in one run; bench.sh [ROUNDS]. `make bench` builds and calls this.
set -euo pipefail
cd "$(dirname "$0")/.."
HSMUX_BUILT=$(realpath "${CARGO_TARGET_DIR:-target}/release")
export HSMUX_BUILT
mkdir -p docs/measurements
exec "$HSMUX_BUILT/figures" "${1:-5}" "docs/measurements/$(date -u +%Y-%m-%d).md"
