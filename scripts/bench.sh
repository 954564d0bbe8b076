#!/usr/bin/env bash
# Measures the figures of docs/performance.md side by side. `make bench` builds and calls this; QUICK=1 is shorter
# and writes no file. Arguments are those of the program `figures`.
set -euo pipefail
cd "$(dirname "$0")/.."
HSMUX_BUILT=$(realpath "${CARGO_TARGET_DIR:-target}/release")
export HSMUX_BUILT
if [ -n "${QUICK-}" ]; then
    exec "$HSMUX_BUILT/figures" --quick "$@"
fi
mkdir -p docs/measurements
# If several files are named, the last one is written.
exec "$HSMUX_BUILT/figures" "docs/measurements/$(date -u +%Y-%m-%d)-figures" "$@"
