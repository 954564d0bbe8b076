#!/usr/bin/env bash
# Builds the release twice, in folders with paths of different length, and compares the results.
# KEEP=1 keeps the folders.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-reproduce.XXXXXX")
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse HEAD)
files=(hsmux hsmux-lab libhsmux_pkcs11.so)

build() {
    local source=$work/$1/src
    mkdir -p "$source"
    git archive "$commit" | tar -x -C "$source"
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
    echo "$file differs; sections with other content:"
    for section in $(readelf -WS "$one" | sed -n 's/^ *\[ *[0-9]*\] \(\.[^ ]*\).*/\1/p'); do
        for from in one other; do
            objcopy -O binary --only-section="$section" --set-section-flags "$section=alloc" "${!from}" "$work/$from" \
                2>/dev/null || true
        done
        cmp -s "$work/one" "$work/other" || echo "  $section"
        rm -f "$work/one" "$work/other"
    done
    # Of the build's folder, or a time of day, for example.
    strings -a "$one" >"$work/one"
    strings -a "$other" >"$work/other"
    echo "and strings:"
    diff <(sort "$work/one") <(sort "$work/other") | sed -n '2,11p' || true
done
exit "$differ"
