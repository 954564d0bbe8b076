#!/usr/bin/env bash
# Checks dependencies for known vulnerabilities in RustSec's database, a git repository outside the package registries.
# Not in `make test`: a new advisory must not fail old code, and some networks cannot reach the database.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo deny --version >/dev/null 2>&1 || {
    echo "cargo-deny is missing: cargo install --locked --version 0.20.2 cargo-deny" >&2
    exit 1
}
database=https://github.com/rustsec/advisory-db
if ! GIT_TERMINAL_PROMPT=0 timeout 60 git ls-remote --quiet "$database" HEAD >/dev/null 2>&1; then
    echo "$database cannot be reached: nothing was checked." >&2
    echo "Run this where it can be, or copy a clone to ~/.cargo/advisory-dbs and run:" >&2
    echo "  cargo deny --offline check advisories" >&2
    exit 2
fi
cargo deny --all-features check advisories
