#!/usr/bin/env bash
# Creates one pool of four SoftHSM tokens, uses and measures it, and kills a worker during the load.
# `make demo` builds and calls this; KEEP=1 leaves the pool running and prints how to use it.
set -euo pipefail
cd "$(dirname "$0")/.."

built=${HSMUX_BUILT:-$(realpath "${CARGO_TARGET_DIR:-target}/release")}
module=$built/libhsmux_pkcs11.so
softhsm=/usr/lib/softhsm/libsofthsm2.so
tokens=(hsm1 hsm2 hsm3 hsm4)

work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-demo.XXXXXX")
report=$work/report.html
export SOFTHSM2_CONF=$work/softhsm2.conf HSMUX_CONFIG=$work/hsmux.toml
started=$SECONDS daemon=

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'; else bold= dim= green= plain=; fi
export PATH=$built:$PATH

step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
# Shows a command as a user would type it, then runs it.
show() {
    printf '%s$' "$dim"; printf ' %s' "${@//"$work/"/}"; printf '%s\n' "$plain"
    "$@"
}

members_serve() {
    for _ in $(seq 1200); do
        hsmux status --check >/dev/null 2>&1 && return
        kill -0 "$daemon" 2>/dev/null || return 1
        sleep 0.1
    done
    hsmux status
    return 1
}

finish() {
    local code=$?
    if [ "$code" -ne 0 ]; then
        echo "The demo failed (exit code $code). The end of the daemon's log:" >&2
        tail -n 20 "$work/daemon.log" >&2 2>/dev/null || true
    elif [ -n "${KEEP-}" ]; then
        return
    fi
    if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then wait "$daemon" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir "$work/tokens"
printf 'directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n' "$work/tokens" >"$SOFTHSM2_CONF"
umask 077
pin() { head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

cd "$work"

step "1. Four SoftHSM tokens, each with a PIN of its own"
for token in "${tokens[@]}"; do
    pin >$token.pin
    pin >$token.so-pin
    hsmux token init --module "$softhsm" --label "$token" --pin "file:$token.pin" --so-pin "file:$token.so-pin"
done

step "2. Keys on the first token: RSA-2048, EC P-256, AES-256"
on_first() {
    pkcs11-tool --module "$softhsm" --token-label hsm1 --login --pin "$(<hsm1.pin)" --sensitive --extractable "$@" \
        >made 2>&1 || { cat made >&2; exit 1; }
    grep -E 'Private Key|Secret Key|label' made
}
on_first --keypairgen --key-type rsa:2048 --id 01 --label rsa
on_first --keypairgen --key-type EC:prime256v1 --id 02 --label ec
on_first --keygen --key-type AES:32 --id 03 --label aes

step "3. One pool of the four: a configuration, and the daemon"
pin >pool.pin
{
    printf '[pool]\nlabel = "web"\n\n[daemon]\nsocket = "hsmux.sock"\npin = { file = "pool.pin" }\n'
    for token in "${tokens[@]}"; do
        printf '\n[[token]]\nmodule = "%s"\nuri = "pkcs11:token=%s"\npin = { file = "%s.pin" }\n' \
            "$softhsm" "$token" "$token"
    done
} >hsmux.toml
show hsmux config check
hsmux serve >daemon.log 2>&1 </dev/null &
daemon=$!
members_serve
show hsmux token list

step "4. The keys are cloned to the other three: wrapped, never in the clear, and proved"
show hsmux key clone --from hsm1
show hsmux key list

step "5. Any PKCS#11 program sees one token"
show pkcs11-tool --module "$module" --list-token-slots

step "6. OpenSSL signs with a key of the pool, and verifies"
echo "a document" >document
# pkcs11-tool of Debian 12 sometimes fails here, because it reads the curve's name from freed memory.
PKCS11_MODULE_PATH=$module openssl pkey -engine pkcs11 -inform engine -pubin -pubout \
    -in "pkcs11:token=web;object=ec;type=public" -out ec.pub 2>/dev/null
PKCS11_MODULE_PATH=$module show openssl dgst -engine pkcs11 -keyform engine -sha256 \
    -sign "pkcs11:token=web;object=ec;type=private;pin-source=file:$work/pool.pin" -out signature document
show openssl dgst -sha256 -verify ec.pub -signature signature document

step "7. Throughput over 1, 2 and 4 tokens; in the middle of the last step a worker is killed"
# Each caller signs with P-256; every signature is verified afterwards. If one fails after the kill of the worker,
# the exit code is not 0, and the demo ends.
echo "   SoftHSM computes on this machine's $(nproc) cores, which all tokens share: more of them add little here."
echo "   Members with a time of their own scale; make bench measures 64 of them."
show hsmux bench scale --yes --tokens 1,2,4 --concurrency 16 --time "${TIME:-5s}" --kill-worker --html "$report"
members_serve

step "All four serve again, and every copy of every key has proved itself"
show hsmux status
show hsmux key verify

printf '\n%sDone in %d s.%s Four tokens are one; a worker died under load, and no signature was lost.\n' \
    "$green$bold" "$((SECONDS - started))" "$plain"
if [ -z "${KEEP-}" ]; then
    kept=${TMPDIR:-/tmp}/hsmux-demo-report.html
    mv "$report" "$kept"
    echo "Report with charts: $kept"
    echo "KEEP=1 leaves the pool up to play with: make demo KEEP=1"
    exit
fi
disown "$daemon"
cat <<END
Report with charts: $report

The pool is up (daemon: process $daemon). In another terminal:

  export HSMUX_CONFIG=$work/hsmux.toml SOFTHSM2_CONF=$SOFTHSM2_CONF PATH=$built:\$PATH
  hsmux status
  pkcs11-tool --module $module --login --pin "\$(cat $work/pool.pin)" --list-objects
  hsmux bench sign --key 'pkcs11:object=ec;type=private'
  hsmux token park hsm2; hsmux token resume hsm2

To end it and take everything away:

  hsmux stop && rm -r $work
END
