#!/usr/bin/env bash
# Compares results of other projects' PKCS#11 suites on a bare SoftHSM token, a pool of one and a pool of three:
# judges.sh [SUITE ...]. `make judges` builds and calls this. Results are in target/judges/results.
set -euo pipefail
cd "$(dirname "$0")/.."

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(pkcs11-check python-pkcs11 crypto11 p11test)
built=${HSMUX_BUILT:-$(realpath "${CARGO_TARGET_DIR:-target}/release")}
softhsm=/usr/lib/softhsm/libsofthsm2.so
judges=$PWD/tests/judges
target=${CARGO_TARGET_DIR:-$PWD/target}/judges
results=$target/results
pin=123456 so_pin=12345678
# Time limits in seconds of a suite with one set-up. pkcs11-check takes twenty minutes on two CPUs.
declare -A limit=([pkcs11-check]=5400 [python-pkcs11]=600 [crypto11]=600 [p11test]=900)

mkdir -p "$target"
exec 9>"$target/lock"
flock 9
work=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-judges.XXXXXX")
umask 077

finish() {
    local file
    for file in "$work"/*/daemon.pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null || true
    done
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# A registry may fail for a moment.
patiently() {
    for pause in 5 15 45 no; do
        "$@" >&2 && return
        [ "$pause" != no ] || { echo "This failed; is there a network? $*" >&2; exit 1; }
        sleep "$pause"
    done
}

python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3 ~/.pyenv/versions/3.1[2-9]*/bin/python3; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && { echo "$candidate"; return; }
    done
    echo "pkcs11-check needs Python 3.12 or newer, and none was found: install one and name it, PYTHON=/its/python3" >&2
    exit 1
}

install_python() {
    cmp -s "$judges/python.txt" "$target/python/installed.txt" && return
    local found
    found=$(python)
    rm -rf "$target/python"
    "$found" -m venv "$target/python"
    patiently "$target/python/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
        --requirement "$judges/python.txt"
    cp "$judges/python.txt" "$target/python/installed.txt"
}

# From the source package, because only that has the tests.
install_python-pkcs11() {
    install_python
    local version=0.10.1 folder=$target/python-pkcs11
    [ ! -e "$folder/tests-$version" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    patiently "$target/python/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
        --dest "$folder" "python-pkcs11==$version"
    tar --extract --file "$folder/python_pkcs11-$version.tar.gz" --directory "$folder"
    patiently "$target/python/bin/pip" install --quiet --disable-pip-version-check --no-deps "$folder/python_pkcs11-$version"
    # In a separate folder: beside the package's sources they would import those, uncompiled.
    mkdir "$folder/tests-$version"
    mv "$folder/python_pkcs11-$version/tests" "$folder/tests-$version/tests"
}

install_pkcs11-check() { install_python; }

install_crypto11() {
    export GOPATH=$target/go/path GOCACHE=$target/go/cache GOTOOLCHAIN=local GOFLAGS="-buildvcs=false -modcacherw"
    (cd "$judges/go" && patiently go test -c -mod=readonly -o "$target/crypto11.test" github.com/ThalesGroup/crypto11)
}

# OpenSC's test program, from the source of Debian's package; apt's own lists remain unchanged.
install_p11test() {
    local apt=$target/apt file source
    [ ! -x "$target/p11test" ] || return 0
    rm -rf "$apt"
    mkdir -p "$apt/parts" "$apt/lists" "$apt/source" "$apt/include"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/${file##*/}"
    done
    [ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$apt/parts/main.list"
    local options=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts"
                   -o "Dir::State::Lists=$apt/lists" -o APT::Sandbox::User=root)
    patiently apt-get "${options[@]}" update
    (cd "$apt/source" && patiently apt-get "${options[@]}" source opensc)
    source=$(find "$apt/source" -mindepth 1 -maxdepth 1 -type d)/src
    printf '#define ENABLE_OPENSSL 1\n' >"$apt/include/config.h"
    (cd "$source/tests/p11test" && cc -w -I"$apt/include" -I../.. -o "$target/p11test" p11test*.c \
        ../../common/libpkcs11.c ../../common/libscdl.c -lcmocka -lcrypto -ldl)
}

# set_up FOLDER MEMBERS: a folder with tokens, and a daemon for a pool; 0 members are the bare token.
set_up() {
    local folder=$1 members=$2 number
    mkdir -p "$folder/tokens"
    printf 'directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n' "$folder/tokens" >"$folder/softhsm2.conf"
    export SOFTHSM2_CONF=$folder/softhsm2.conf HSMUX_CONFIG=$folder/hsmux.toml
    for number in $(seq $((members > 0 ? members : 1))); do
        softhsm2-util --init-token --free --label "hsm$number" --so-pin $so_pin --pin $pin >/dev/null
    done
    # Suites recognise SoftHSM by its module's name, and then expect its behaviour.
    if [ "$members" = 0 ]; then
        ln -s "$softhsm" "$folder/libsofthsm2.so"
        return
    fi
    ln -s "$built/libhsmux_pkcs11.so" "$folder/libsofthsm2.so"
    printf %s $pin >"$folder/token.pin"
    {
        printf '[pool]\nlabel = "pool"\ndeadline = "60s"\n'
        printf '[daemon]\nsocket = "hsmux.sock"\nmode = "0600"\npin = { file = "token.pin" }\n[module]\nmode = "daemon"\n'
        for number in $(seq "$members"); do
            printf '[[token]]\nmodule = "%s"\nuri = "pkcs11:token=hsm%s"\npin = { file = "token.pin" }\n' $softhsm "$number"
        done
    } >"$folder/hsmux.toml"
    "$built/hsmux" serve >"$folder/daemon.log" 2>&1 9>&- &
    echo $! >"$folder/daemon.pid"
    for _ in $(seq 600); do
        "$built/hsmux" status --check >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "The pool in $folder does not serve:" >&2
    tail -n 20 "$folder/daemon.log" >&2
    return 1
}

run_pkcs11-check() {
    "$target/python/bin/pkcs11-check" test --module "$module" --pin $pin --slot 0 --skip-slow --format json --output-file check.json
    mv report.jsonl "$1.jsonl"
}

run_python-pkcs11() {
    (cd "$target/python-pkcs11"/tests-*/ &&
        PKCS11_MODULE=$module PKCS11_TOKEN_LABEL=$label PKCS11_TOKEN_PIN=$pin PKCS11_TOKEN_SO_PIN=$so_pin \
            "$target/python/bin/python3" -m pytest -q -p no:cacheprovider --junitxml "$1.xml" tests)
}

run_crypto11() {
    printf '{"Path": "%s", "TokenLabel": "%s", "Pin": "%s"}' "$module" "$label" "$pin" >config
    "$target/crypto11.test" -test.v >"$1.go"
}

# With the keys of its own script; a key that cannot be created is a failure like others.
run_p11test() {
    local tool=(pkcs11-tool --module "$module" --token-label "$label" --login --pin "$pin") type id made
    local all="--extractable --usage-wrap --usage-sign --usage-decrypt --usage-derive"
    export GNUTLS_PIN=$pin
    printf 'cn = "judges"\nserial = 1\nexpiration_days = 30\nsigning_key\n' >template
    while read -r id type; do
        # shellcheck disable=SC2086
        "${tool[@]}" --keypairgen --key-type "$type" --id "$id" --label "key$id" $all && made="      OK" || made=" FAILED "
        printf '[ RUN      ] %s\n[ %s ] %s\n' "key-pair:$type" "$made" "key-pair:$type" >>made
        [[ $type != *25519 ]] || continue
        certtool --generate-self-signed --template template --outder --outfile "$id.der" --provider "$module" \
            --load-privkey "pkcs11:token=$label;object=key$id;type=private" \
            --load-pubkey "pkcs11:token=$label;object=key$id;type=public"
        "${tool[@]}" --write-object "$id.der" --type cert --id "$id" --label "key$id"
    done <<<$'01 RSA:1024\n02 RSA:2048\n03 EC:secp256r1\n04 EC:secp521r1\n05 EC:edwards25519'
    while read -r id type; do
        "${tool[@]}" --keygen --key-type "$type" --id "$id" --label "key$id" --extractable --usage-wrap --usage-decrypt &&
            made="      OK" || made=" FAILED "
        printf '[ RUN      ] %s\n[ %s ] %s\n' "key:$type" "$made" "key:$type" >>made
    done <<<$'07 aes:16\n08 aes:32'
    # A crash is a result as well. cmocka writes to stdout and stderr.
    { "$target/p11test" -m "$module" -p $pin || true; } >>made 2>&1
    cp made "$1.cmocka"
}

# One suite with one set-up: separate tokens and log.
judge() {
    local suite=$1 setup=$2 members=$3 folder=$work/$1-$2 label=pool code=0
    [ "$members" != 0 ] || label=hsm1
    set_up "$folder" "$members"
    module=$folder/libsofthsm2.so
    export -f "run_$suite"
    export module label pin so_pin target HOME=$folder
    (cd "$folder" && timeout --kill-after=30 "${limit[$suite]}" bash -c "run_$suite $results/$suite/$setup") \
        >"$results/$suite/$setup.log" 2>&1 9>&- || code=$?
    [ "$code" != 124 ] || echo "$suite, $setup: not done after ${limit[$suite]} s" >&2
    if [ -e "$folder/daemon.pid" ]; then
        cp "$folder/daemon.log" "$results/$suite/$setup.daemon"
        kill "$(cat "$folder/daemon.pid")" 2>/dev/null || true
    fi
}

for suite in "${suites[@]}"; do
    [ -n "${limit[$suite]-}" ] || { echo "$suite: one of ${!limit[*]}" >&2; exit 2; }
    "install_$suite"
done
for suite in "${suites[@]}"; do
    echo "== $suite: bare, a pool of one, a pool of three"
    rm -rf "${results:?}/$suite"
    mkdir -p "$results/$suite"
    running=()
    for setup in "bare 0" "one 1" "three 3"; do
        # shellcheck disable=SC2086
        (trap - EXIT; judge "$suite" $setup) &
        running+=($!)
    done
    for one in "${running[@]}"; do wait "$one"; done
done
python3 "$judges/compare.py" "$results" "$judges/reasons.toml"
