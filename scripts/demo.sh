#!/usr/bin/env bash
# Measures a pool of virtual cards of the published speed, pulls a card out under load, and shows SoftHSM with OpenSSL.
# `make demo` builds and calls this; KEEP=1 leaves the cards running and prints how to use them. CARDS=2 and TIME=1s,
# the time of each measurement, make it shorter.
set -euo pipefail
cd "$(dirname "$0")/.."

built=${HSMUX_BUILT:-$(realpath "${CARGO_TARGET_DIR:-target}/release")}
module=$built/libhsmux_pkcs11.so
softhsm=/usr/lib/softhsm/libsofthsm2.so
opensc=$(echo /usr/lib/*/opensc-pkcs11.so)
cards=${CARDS:-8} time=${TIME:-10s}
# Each card has a signature to make and one that waits.
callers=$((2 * cards)) last=$((cards - 1))

work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-demo.XXXXXX")
report=${TMPDIR:-/tmp}/hsmux-demo-report.html
started=$SECONDS processes=()
export PATH=$built:$PATH

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'; else bold= dim= green= plain=; fi
step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
# Shows a command as a user would type it, then runs it.
show() {
    printf '%s$ %s%s\n' "$dim" "${1//"$PWD/"/}" "$plain"
    eval "$1"
}

# Waits until a command succeeds, for two minutes and for as long as the last started process runs.
await() {
    for _ in $(seq 1200); do
        "$@" >/dev/null 2>&1 && return
        kill -0 "${processes[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "This did not succeed: $*" >&2
    return 1
}

finish() {
    local code=$?
    if [ "$code" -ne 0 ]; then
        echo "The demo failed (exit code $code). The ends of the logs:" >&2
        tail -n 20 "$work"/*/*.log >&2 2>/dev/null || true
    elif [ -n "${KEEP-}" ]; then
        return
    fi
    # The daemons before the cards.
    for ((at = ${#processes[@]} - 1; at >= 0; at--)); do
        if kill "${processes[at]}" 2>/dev/null; then wait "${processes[at]}" 2>/dev/null || true; fi
    done
    cd / && rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

umask 077
random() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# Enters a new folder, and uses the configuration there.
enter() {
    mkdir "$work/$1"
    cd "$work/$1"
    export HSMUX_CONFIG=$PWD/hsmux.toml
}

# Writes a configuration without members.
configure() {
    printf '[pool]\nlabel = "web"\n\n[daemon]\nsocket = "hsmux.sock"\npin = { file = "pool.pin" }\n' >hsmux.toml
}

# Starts the daemon, and waits until every member serves.
serve() {
    show 'hsmux config check'
    show 'hsmux serve 2> hsmux.log &'
    processes+=($!)
    await hsmux status --check
}

# Breaks something under load: a command, the condition that shows its effect, and further options of the load, which
# fails if a signature fails or is wrong.
sign_during() {
    show "hsmux bench sign --label web --concurrency $callers --time 4s $3> sign.txt &"
    local load=$!
    # A second after the start of the measurement.
    sleep 1.5
    show "$1"
    await "$2"
    show 'hsmux token list'
    wait "$load"
    show "grep -E '^(done|failed|verified)' sign.txt"
}

a_member_rests() { hsmux token list | grep -w resting; }

step "1. $cards virtual SmartCard-HSMs, as slow as real ones: 241 ms for a signature"
enter cards
show "hsmux vcard run --count $cards --timing smartcard-hsm > environment &"
processes+=($!)
await grep HSMUX_VCARD environment
show '. ./environment'

step "2. All cards get one key-encryption key (DKEK), under which keys travel between them"
random 12 >share.password
random 8 >so.pin
random 6 >user.pin
random 12 >pool.pin
show 'hsmux card dkek create-share share.pbe --password file:share.password'
serials=$(hsmux vcard list | awk 'NR > 1 { print $2 }')
show "for card in ${serials//$'\n'/ }; do
    hsmux card init --card \$card --label web --dkek-shares 1 --so-pin file:so.pin --pin file:user.pin --yes 2>> init.log
done"
show 'hsmux card dkek import-share share.pbe --all --password file:share.password'

step "3. One pool of all cards: each has a worker process with OpenSC"
configure
# OpenSC looks into every reader but those to ignore; see docs/cards-in-a-pool.md.
readers=$(hsmux vcard list | sed -n 's/.*plugged in *//p')
paste <(echo "$serials") <(echo "$readers") | while IFS=$'\t' read -r serial reader; do
    others=$(awk -v own="$reader" '$0 != own { printf "%s\"%s\"", more, $0; more = ", " }' <<<"$readers")
    echo "app default { ${others:+ignored_readers = $others;} }" >"$serial.conf"
    printf '\n[[token]]\nmodule = "%s"\nuri = "pkcs11:serial=%s"\n' "$opensc" "$serial"
    printf 'pin = { file = "user.pin" }\nenv = { OPENSC_CONF = "%s" }\n' "$PWD/$serial.conf"
done >>hsmux.toml
serve

step "4. A key: one card makes it, the others get it wrapped, and each proves by a signature that it has it"
show 'hsmux key generate ec:brainpoolp256r1 --label web'

counts=1
for ((count = 2; count <= cards; count *= 2)); do counts+=,$count; done
step "5. Signatures per second by ${counts//,/, } cards, beside published ones of real cards"
show "hsmux bench scale --yes --tokens $counts --concurrency $callers --time $time --label web --html $report > scale.txt"
# The first columns of the table in it, without units.
awk '$1 == "members" && $2 == "rate" { print "cards", "signatures/s", "factor", "published/s"; rows = 1; next }
     !NF { rows = 0 }
     rows { gsub("/s", ""); print $1, $2, sprintf("%.1f", $3), $4 }' scale.txt >table.txt
awk '{ printf "%-5s  %12s  %6s  %11s\n", $1, $2, $3, $4 }' table.txt
factor=$(awk 'END { print $3 }' table.txt)

step "6. A card is pulled out of its reader under load"
sign_during "hsmux vcard fault $last unplug > cards.txt" a_member_rests ''
step "   It is plugged in again, and serves"
show "hsmux vcard fault $last plug > cards.txt"
await hsmux status --check
show 'hsmux token list'

step "7. Other tokens: two of SoftHSM, each with a PIN of its own"
enter softhsm
mkdir tokens
export SOFTHSM2_CONF=$PWD/softhsm2.conf
printf 'directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n' "$PWD/tokens" >softhsm2.conf
for pin in pool hsm1 hsm2 so; do random 12 >$pin.pin; done
configure
for token in hsm1 hsm2; do
    printf '\n[[token]]\nmodule = "%s"\nuri = "pkcs11:token=%s"\npin = { file = "%s.pin" }\n' \
        "$softhsm" "$token" "$token"
done >>hsmux.toml
for token in hsm1 hsm2; do
    show "hsmux token init --module $softhsm --label $token --pin file:$token.pin --so-pin file:so.pin"
done
serve
show 'hsmux key generate ec:p256 --label web'

step "8. OpenSSL signs with the key of the pool, and verifies"
echo "a document" >document
export PKCS11_MODULE_PATH=$module
# pkcs11-tool of Debian 12 sometimes fails here, because it reads the curve's name from freed memory.
openssl pkey -engine pkcs11 -inform engine -pubin -pubout -in "pkcs11:token=web;object=web;type=public" \
    -out web.pub 2>/dev/null
show "openssl dgst -sha256 -engine pkcs11 -keyform engine -out signature \\
    -sign 'pkcs11:token=web;object=web;type=private;pin-source=file:$PWD/pool.pin' document"
show 'openssl dgst -sha256 -verify web.pub -signature signature document'

step "9. A worker is killed under load, as if its token's module had crashed"
sign_during "kill -9 $(hsmux token status hsm2 | awk '$1 == "processes" { print $2 }')" true '--rate 2000 '
await hsmux status --check

printf '\n%sDone in %d s.%s %d cards sign %s times as fast as one.\n' \
    "$green$bold" "$((SECONDS - started))" "$plain" "$cards" "$factor"
echo "A card was pulled out and a worker was killed under load, and no signature was lost."
echo "Report with charts: $report"
if [ -z "${KEEP-}" ]; then
    echo "KEEP=1 leaves the cards running to play with: make demo KEEP=1"
    exit
fi
hsmux stop
cd "$work/cards"
disown -a
cat <<END

The cards (process ${processes[0]}) and their pool (daemon: process ${processes[1]}) run. In another terminal:

  export HSMUX_CONFIG=$PWD/hsmux.toml PATH=$built:\$PATH; . $PWD/environment
  hsmux vcard fault 0 unplug; sleep 1; hsmux status
  hsmux vcard fault 0 plug
  pkcs11-tool --module $module --login --pin "\$(cat $PWD/pool.pin)" --list-objects
  hsmux bench sign --label web --concurrency $callers --count 20

To end it and take everything away:

  hsmux stop; kill ${processes[0]}; rm -r $work
END
