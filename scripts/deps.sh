#!/usr/bin/env bash
# Installs the missing Debian packages for a target of the Makefile:
# deps.sh build|fuzz|demo|bench|attacks|cluster|wordpress|judges|docs|test
# For tests it also fetches clients that Debian lacks.
set -euo pipefail

build=(build-essential pkg-config libpcsclite-dev cmake clang libclang-dev)
# The sanitizers' runtime for C, which clang only recommends.
fuzz=("${build[@]}" libclang-rt-dev)
softhsm=("${build[@]}" softhsm2 opensc openssl libengine-pkcs11-openssl)
# With virtual cards.
demo=("${softhsm[@]}" pcscd vsmartcard-vpcd iproute2 util-linux mount)
bench=("${demo[@]}" p11-kit p11-kit-modules python3 nginx siege)
attacks=("${softhsm[@]}" python3 python3-cbor2)
cluster=("${bench[@]}" haproxy curl jq socat)
# Only MariaDB's programs, without the service. php-fpm comes first, or php installs Apache's module.
wordpress=("${cluster[@]}" php-fpm php php-mysql mariadb-server-core mariadb-client-core
           wordpress wordpress-theme-twentytwentythree)
docs=(build-essential python3)
# gcc and headers for suites in C and Cython. scripts/judges.sh checks for Python 3.12 or newer.
judges=("${build[@]}" softhsm2 opensc gnutls-bin libcmocka-dev libssl-dev dpkg-dev python3 python3-venv golang-go)
test=("${wordpress[@]}" gnutls-bin libnss3-tools openssh-client openssh-server default-jdk-headless
      python3-pykcs11 python3-hvac python3-prometheus-client python3-grpcio python3-venv golang-go git libnginx-mod-stream
      systemd python3-cbor2 faketime apache2-bin chromium testssl.sh pebble certbot lego goaccess)

declare -n wanted=${1:?build, fuzz, demo, bench, attacks, cluster, wordpress, judges, docs or test}

# First, because no Debian package provides it and nothing works without it.
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
found=$(command -v cargo >/dev/null && rustc --version | cut -d ' ' -f 2) || found=
if [ -z "$found" ]; then
    echo "Rust is missing: install it from https://rustup.rs ($needed or newer), then run this again." >&2
    exit 1
fi
if ! printf '%s\n' "$needed" "$found" | sort --version-sort --check=quiet; then
    echo "Rust is too old: $(command -v rustc) is $found, and $needed or newer is needed. \`rustup update\` brings it" \
         "where it came from https://rustup.rs; install it from there where it did not. Then run this again." >&2
    exit 1
fi

installed() {
    # Any JDK with javac and any Go is accepted, not only Debian's default ones.
    case $1 in
    default-jdk-headless) ! command -v javac >/dev/null || return 0 ;;
    golang-go) ! command -v go >/dev/null || return 0 ;;
    esac
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

missing=()
for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ] && ! command -v apt-get >/dev/null; then
    echo "This is no Debian; what is needed is called there: ${missing[*]}" >&2
    missing=()
fi

# For a build the programs may also come from elsewhere than packages.
if [ "$1" = build ] && [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "These packages are missing, and there is neither root nor sudo: ${missing[*]}; going on without" >&2
    missing=()
fi

if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing Debian packages: ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "These packages are missing, and there is neither root nor sudo: ${missing[*]}" >&2
            exit 1
        }
        as_root=(sudo)
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
         apt-get -qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
    # A mirror may fail for a moment, and another apt may run, as often on a new machine.
    for pause in 5 15 45 90 no; do
        "${apt[@]}" update &&
            "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null && break
        [ "$pause" != no ] || exit 1
        echo "apt-get has failed; again in $pause s" >&2
        sleep "$pause"
    done
fi

if [ "$1" = test ]; then
    for client in schemathesis go; do
        "$(dirname "$0")/clients.sh" "$client" >/dev/null
    done
fi

if [ "$1" = docs ]; then
    # Debian 12 has none. Without the preview server.
    version=0.5.4 root=$(realpath "$(dirname "$0")/..")/target/tools
    if ! "$root/bin/mdbook" --version 2>/dev/null | grep -qx "mdbook v$version"; then
        echo "mdbook $version is missing; building it takes some minutes, once"
        CARGO_TARGET_DIR=$root/build cargo install mdbook --locked --quiet --version "$version" --root "$root" \
            --no-default-features --features search
        rm -rf "$root/build"
    fi
fi
