#!/usr/bin/env bash
# Installs what is built, or with --remove takes it away. `make install` sets the folders.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${DESTDIR=}" "${PREFIX=/usr/local}" "${LIBDIR=$PREFIX/lib}" "${UNITDIR=$PREFIX/lib/systemd/system}"
: "${SYSUSERSDIR=$PREFIX/lib/sysusers.d}"
: "${BUILT=${CARGO_TARGET_DIR:-target}/release}"
bin=$PREFIX/bin share=$PREFIX/share

files=(
    "$bin/hsmux"
    "$LIBDIR/libhsmux_pkcs11.so"
    "$share/bash-completion/completions/hsmux"
    "$share/zsh/site-functions/_hsmux"
    "$share/fish/vendor_completions.d/hsmux.fish"
    "$share/p11-kit/modules/hsmux.module"
    "$UNITDIR/hsmux.service"
    "$SYSUSERSDIR/hsmux.conf"
)

if [ "${1-}" = --remove ]; then
    for file in "${files[@]}"; do rm -f "$DESTDIR$file"; done
    rm -f "$DESTDIR$share"/man/man1/hsmux{,-*}.1
    exit
fi

for file in hsmux libhsmux_pkcs11.so; do
    [ -f "$BUILT/$file" ] || { echo "$BUILT/$file is not there; first: make build" >&2; exit 1; }
done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
hsmux=$BUILT/hsmux
"$hsmux" man "$made/man"
for shell in bash zsh fish; do "$hsmux" completions "$shell" >"$made/$shell"; done
sed "s|@BINDIR@|$bin|" dist/hsmux.service >"$made/hsmux.service"
printf '# The pool as one token, for every program that uses p11-kit.\nmodule: %s\n' \
    "$LIBDIR/libhsmux_pkcs11.so" >"$made/hsmux.module"

install -Dm755 "$hsmux" "$DESTDIR$bin/hsmux"
install -Dm755 "$BUILT/libhsmux_pkcs11.so" "$DESTDIR$LIBDIR/libhsmux_pkcs11.so"
install -Dm644 "$made/bash" "$DESTDIR$share/bash-completion/completions/hsmux"
install -Dm644 "$made/zsh" "$DESTDIR$share/zsh/site-functions/_hsmux"
install -Dm644 "$made/fish" "$DESTDIR$share/fish/vendor_completions.d/hsmux.fish"
install -Dm644 "$made/hsmux.module" "$DESTDIR$share/p11-kit/modules/hsmux.module"
install -Dm644 "$made/hsmux.service" "$DESTDIR$UNITDIR/hsmux.service"
install -Dm644 dist/hsmux.sysusers "$DESTDIR$SYSUSERSDIR/hsmux.conf"
install -d "$DESTDIR$share/man/man1"
install -m644 "$made"/man/*.1 "$DESTDIR$share/man/man1/"
# A package's own scripts do this on the machine that it is for.
if [ -z "$DESTDIR" ] && command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$SYSUSERSDIR/hsmux.conf"
fi
echo "hsmux is in $DESTDIR$bin, the module in $DESTDIR$LIBDIR; example: hsmux config example"
