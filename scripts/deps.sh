#!/usr/bin/env bash
# Installs the Debian packages that a target of the Makefile needs and that are missing: deps.sh demo|bench|test
set -euo pipefail

demo=(softhsm2 opensc openssl libengine-pkcs11-openssl build-essential pkg-config libpcsclite-dev)
bench=("${demo[@]}" p11-kit p11-kit-modules pcscd vsmartcard-vpcd iproute2 python3)
test=("${bench[@]}" gnutls-bin libnss3-tools openssh-client openssh-server default-jdk-headless
      python3-pykcs11 git)

declare -n wanted=${1:?demo, bench or test}

installed() {
    # Any JDK with javac will do, not only Debian's default one.
    if [ "$1" = default-jdk-headless ] && command -v javac >/dev/null; then return 0; fi
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

missing=()
for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
done

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
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
    echo "Rust is missing: install it from https://rustup.rs (1.88 or newer), then run this again." >&2
    exit 1
fi
