#!/usr/bin/env bash
# The figures of docs/performance.md, side by side in one run. `make bench` builds and calls this; QUICK=1 is shorter
# and writes nothing down. Arguments are those of the program `figures`.
set -euo pipefail
cd "$(dirname "$0")/.."
HSMUX_BUILT=$(realpath "${CARGO_TARGET_DIR:-target}/release")
export HSMUX_BUILT
if [ -n "${QUICK-}" ]; then
    exec "$HSMUX_BUILT/figures" --quick "$@"
fi
mkdir -p docs/measurements
# The last file that is named is the one that is written.
exec "$HSMUX_BUILT/figures" "docs/measurements/$(date -u +%Y-%m-%d)-figures" "$@"
