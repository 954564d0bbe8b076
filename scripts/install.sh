#!/usr/bin/env bash
# Installs the built files, or removes them with --remove. `make install` sets the folders. LAB=no omits hsmux-lab.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${DESTDIR=}" "${PREFIX=/usr/local}" "${LIBDIR=$PREFIX/lib}" "${UNITDIR=$PREFIX/lib/systemd/system}"
: "${SYSUSERSDIR=$PREFIX/lib/sysusers.d}"
: "${BUILT=${CARGO_TARGET_DIR:-target}/release}"
: "${LAB=yes}"
bin=$PREFIX/bin share=$PREFIX/share
programs=(hsmux hsmux-lab)
units=(hsmux.service hsmux-{gateway,broker,node}.service)

files=(
    "$LIBDIR/libhsmux_pkcs11.so"
    "$share/p11-kit/modules/hsmux.module"
    "${units[@]/#/$UNITDIR/}"
    "$SYSUSERSDIR/hsmux.conf"
)
for program in "${programs[@]}"; do
    files+=(
        "$bin/$program"
        "$share/bash-completion/completions/$program"
        "$share/zsh/site-functions/_$program"
        "$share/fish/vendor_completions.d/$program.fish"
    )
done

if [ "${1-}" = --remove ]; then
    for file in "${files[@]}"; do rm -f "$DESTDIR$file"; done
    rm -f "$DESTDIR$share"/man/man1/hsmux{,-*}.1
    echo "hsmux is removed. What may hold keys and PINs stays: /etc/hsmux, /var/lib/hsmux*, and the users hsmux*"
    exit
fi

[ "$LAB" != no ] || programs=(hsmux)
for file in "${programs[@]}" libhsmux_pkcs11.so; do
    [ -f "$BUILT/$file" ] || { echo "$BUILT/$file is not there; first: make build" >&2; exit 1; }
done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for program in "${programs[@]}"; do
    "$BUILT/$program" man "$made/man"
    for shell in bash zsh fish; do "$BUILT/$program" completions "$shell" >"$made/$program.$shell"; done
done
for unit in "${units[@]}"; do sed "s|@BINDIR@|$bin|" "dist/$unit" >"$made/$unit"; done
printf '# The pool as one token, for every program that uses p11-kit.\nmodule: %s\n' \
    "$LIBDIR/libhsmux_pkcs11.so" >"$made/hsmux.module"

for program in "${programs[@]}"; do
    install -Dm755 "$BUILT/$program" "$DESTDIR$bin/$program"
    install -Dm644 "$made/$program.bash" "$DESTDIR$share/bash-completion/completions/$program"
    install -Dm644 "$made/$program.zsh" "$DESTDIR$share/zsh/site-functions/_$program"
    install -Dm644 "$made/$program.fish" "$DESTDIR$share/fish/vendor_completions.d/$program.fish"
done
install -Dm755 "$BUILT/libhsmux_pkcs11.so" "$DESTDIR$LIBDIR/libhsmux_pkcs11.so"
install -Dm644 "$made/hsmux.module" "$DESTDIR$share/p11-kit/modules/hsmux.module"
for unit in "${units[@]}"; do install -Dm644 "$made/$unit" "$DESTDIR$UNITDIR/$unit"; done
install -Dm644 dist/hsmux.sysusers "$DESTDIR$SYSUSERSDIR/hsmux.conf"
install -d "$DESTDIR$share/man/man1"
install -m644 "$made"/man/*.1 "$DESTDIR$share/man/man1/"
# For a package its own scripts do this on the target machine.
if [ -z "$DESTDIR" ] && command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$SYSUSERSDIR/hsmux.conf"
fi
echo "${programs[*]} in $DESTDIR$bin, the module in $DESTDIR$LIBDIR; example: hsmux config example"
