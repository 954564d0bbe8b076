#!/usr/bin/env bash
# Four SoftHSM tokens become one pool, which is used, measured, and loses a worker in the middle of it.
# `make demo` builds and calls this; KEEP=1 leaves the pool up and says how to use it.
set -euo pipefail
cd "$(dirname "$0")/.."

built=$(realpath "${CARGO_TARGET_DIR:-target}/${PROFILE:-release}")
hsmux=$built/hsmux
module=$built/libhsmux_pkcs11.so
softhsm=/usr/lib/softhsm/libsofthsm2.so
tokens=(hsm1 hsm2 hsm3 hsm4)

work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-demo.XXXXXX")
report=$work/report.html
export SOFTHSM2_CONF=$work/softhsm2.conf HSMUX_CONFIG=$work/hsmux.toml
started=$SECONDS daemon=

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'; else bold= dim= green= plain=; fi
step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
# Shows a command as a person would type it, then runs it.
show() {
    printf '%s$' "$dim"; printf ' %s' "${@//$work\//}"; printf '%s\n' "$plain"
    "$@"
}

finish() {
    local code=$?
    if [ "$code" -ne 0 ] || [ -z "${KEEP-}" ]; then
        if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then wait "$daemon" 2>/dev/null || true; fi
    fi
    if [ "$code" -ne 0 ]; then
        echo "The demo failed (exit code $code). The end of the daemon's log ($work/daemon.log):" >&2
        tail -n 20 "$work/daemon.log" >&2 2>/dev/null || true
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir "$work/tokens"
printf 'directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n' "$work/tokens" >"$SOFTHSM2_CONF"
umask 077
pin() { head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

step "1. Four tokens, each with a PIN of its own"
for token in "${tokens[@]}"; do
    pin >"$work/$token.pin"
    softhsm2-util --init-token --free --label "$token" --pin "$(<"$work/$token.pin")" --so-pin "$(pin)" >/dev/null
    echo "   $token"
done

step "2. Keys on the first token: RSA-2048, EC P-256, AES-256"
on_first() { pkcs11-tool --module "$softhsm" --token-label hsm1 --login --pin "$(<"$work/hsm1.pin")" "$@" >/dev/null 2>&1; }
on_first --keypairgen --key-type rsa:2048 --id 01 --label rsa --sensitive --extractable
on_first --keypairgen --key-type EC:prime256v1 --id 02 --label ec --sensitive --extractable
on_first --keygen --key-type AES:32 --id 03 --label aes --sensitive --extractable
echo "   rsa, ec, aes"

step "3. One pool of the four: the configuration, and the daemon"
pin >"$work/pool.pin"
{
    printf '[pool]\nlabel = "web"\n\n[daemon]\nsocket = "hsmux.sock"\npin = { file = "pool.pin" }\n'
    for token in "${tokens[@]}"; do
        printf '\n[[token]]\nmodule = "%s"\nuri = "pkcs11:token=%s"\npin = { file = "%s.pin" }\n' \
            "$softhsm" "$token" "$token"
    done
} >"$HSMUX_CONFIG"
show "$hsmux" config check
"$hsmux" serve >"$work/daemon.log" 2>&1 </dev/null &
daemon=$!
for _ in $(seq 100); do
    "$hsmux" status --check >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || exit 1
    sleep 0.1
done

step "4. The keys are cloned to the other three: wrapped, proved, never in the clear"
show "$hsmux" key clone --from hsm1
show "$hsmux" key list

step "5. Any PKCS#11 program sees one token"
show pkcs11-tool --module "$module" --list-token-slots
show pkcs11-tool --module "$module" --login --pin "$(<"$work/pool.pin")" --list-objects --type privkey

step "6. OpenSSL signs through the pool; the signature is good"
echo "a document" >"$work/document"
pkcs11-tool --module "$module" --read-object --type pubkey --label ec -o "$work/ec.der" >/dev/null 2>&1
PKCS11_MODULE_PATH=$module show openssl dgst -engine pkcs11 -keyform engine -sha256 \
    -sign "pkcs11:token=web;object=ec;type=private;pin-source=file:$work/pool.pin" \
    -out "$work/signature" "$work/document"
show openssl dgst -sha256 -verify "$work/ec.der" -keyform DER -signature "$work/signature" "$work/document"

step "7. Throughput over 1, 2 and 4 tokens; in the middle of it a worker is killed"
measure

step "Summary"
