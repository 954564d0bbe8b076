#!/usr/bin/env bash
# Builds the release twice, in folders with paths of different length, and compares the results.
# KEEP=1 keeps the folders.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-reproduce.XXXXXX")
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
files=(hsmux hsmux-lab libhsmux_pkcs11.so)

build() {
    local source=$work/$1/src
    mkdir -p "$source"
    git archive HEAD | tar -x -C "$source"
    echo "== $source"
    (cd "$source" && CARGO_TARGET_DIR=$work/$1/target scripts/release.sh)
}

build a
build a/folder/whose/path/is/longer
differ=0
for file in "${files[@]}"; do
    one=$work/a/target/release/$file other=$work/a/folder/whose/path/is/longer/target/release/$file
    sha256sum "$one" "$other"
    if cmp -s "$one" "$other"; then
        echo "$file: the same"
        continue
    fi
    differ=1
    echo "$file differs in $(cmp -l "$one" "$other" | wc -l) bytes; sections that differ:"
    diff <(readelf -WS "$one") <(readelf -WS "$other") | sed -n 's/^[<>] *//p' | head -20
    for section in $(readelf -WS "$one" | sed -n 's/^ *\[ *[0-9]*\] \(\.[^ ]*\).*/\1/p'); do
        cmp -s <(objcopy -O binary --dump-section "$section"=/dev/stdout "$one" /dev/null 2>/dev/null) \
            <(objcopy -O binary --dump-section "$section"=/dev/stdout "$other" /dev/null 2>/dev/null) || echo "  $section"
    done
    grep -c "$work" "$one" | sed 's/^/  lines with the path of the build: /' || true
done
exit "$differ"
