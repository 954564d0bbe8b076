#!/usr/bin/env bash
# The release build. Paths of the source, the registry and the output are removed, and the time of the build,
# so that the same source gives the same programs in any folder.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
cargo=${CARGO_HOME:-$HOME/.cargo}
# If several match, rustc and clang use the last.
prefixes=("$cargo=/cargo" "$PWD=/hsmux" "$target=/target")
for prefix in "${prefixes[@]}"; do
    RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$prefix"
    CFLAGS="${CFLAGS:-} -ffile-prefix-map=$prefix"
done
# C code that wants to know when it was compiled. With DWARF 5, clang 14 does not replace names of assembler files.
CFLAGS+=' -Wno-builtin-macro-redefined -D__DATE__="reproducible" -D__TIME__="reproducible" -gdwarf-4'
export RUSTFLAGS CFLAGS CXXFLAGS="${CXXFLAGS:-} $CFLAGS"
exec cargo build --release --locked -p hsmux-cli -p hsmux-lab -p hsmux-pkcs11 "$@"
