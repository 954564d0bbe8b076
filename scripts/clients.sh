#!/usr/bin/env bash
# Fetches test clients of the broker that Debian lacks, once, and prints their folder in target/clients:
# clients.sh schemathesis|go. Versions are pinned in tests/suite/programs.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:?schemathesis or go}
programs=$PWD/tests/suite/programs
target=${CARGO_TARGET_DIR:-$PWD/target}/clients
mkdir -p "$target"
# Several tests may call this at the same time, and cargo may build.
exec 9>"$target/$what.lock"
flock 9

# A registry may fail for a moment.
patiently() {
    for pause in 5 15 45 90 no; do
        "$@" >&2 && return
        [ "$pause" != no ] || {
            echo "$what: it could not be fetched; is there a network? $*" >&2
            exit 1
        }
        echo "$what: not fetched; again in $pause s" >&2
        sleep "$pause"
    done
}

case $what in
schemathesis)
    pins=$programs/schemathesis.txt
    folder=$target/schemathesis
    # Debian's python in spite of PATH: deps.sh has installed venv for it.
    if ! cmp -s "$pins" "$folder/installed.txt"; then
        rm -rf "$folder"
        /usr/bin/python3 -m venv "$folder"
        patiently "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 5 \
            --only-binary :all: --no-deps --requirement "$pins"
        cp "$pins" "$folder/installed.txt"
    fi
    echo "$folder/bin/schemathesis"
    ;;
go)
    export GOPATH=$target/go/path GOCACHE=$target/go/cache GOTOOLCHAIN=local GOFLAGS="-buildvcs=false -modcacherw"
    # Without optimisation, because it runs once.
    export CGO_ENABLED=0
    cd "$programs/goclients"
    patiently go build -mod=readonly -gcflags='all=-N -l' -o "$target/go/" .
    echo "$target/go/goclients"
    ;;
*)
    echo "$what: schemathesis or go" >&2
    exit 2
    ;;
esac
