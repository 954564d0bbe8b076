# A token for each host, with the same keys on all three.

softhsm=/usr/lib/softhsm/libsofthsm2.so
opensc=/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so
# The keys in $KEYS that a SmartCard-HSM supports, by their names in the published table and in pkcs11-tool.
declare -A keys=()
for key in $KEYS; do
    case $key in
    rsa-1024 | rsa-2048) keys[$key]=${key/-/:} ;;
    ec-prime256v1) keys[$key]=EC:prime256v1 ;;
    esac
done

tokens_prepare() {
    umask 077
    openssl rand -hex 6 >user.pin
    openssl rand -hex 8 >so.pin
    openssl rand -hex 12 >share.password
    "${TOKENS}_prepare"
    umask 022
}

# Runs a command on a host, which sees only the host's token.
at() {
    local host=$1
    shift
    (
        set -a
        . "$CLUSTER_WORK/$host/environment"
        exec ip netns exec "$host" "$@"
    )
}

# Keys leave a card only under its DKEK, as in the published cluster: each card is initialised with the same share,
# and restores the first one's backup.
cards_prepare() {
    echo "   the cards protect nothing: they are virtual"
    show hsmux card dkek create-share share.pbe --password file:share.password
    for host in "${hosts[@]}"; do
        cards_start "$host" none
        show at "$host" hsmux card init --label "$host" --dkek-shares 1 --so-pin file:so.pin --pin file:user.pin --yes
        show at "$host" hsmux card dkek import-share share.pbe --password file:share.password
        if [ "$host" = host1 ]; then
            cards_keys host1
            show at host1 hsmux card backup keys.backup --pin file:user.pin
        else
            show at "$host" hsmux card restore keys.backup --pin file:user.pin
        fi
        at "$host" hsmux card list --json | jq --raw-output '.cards[0].serial' >"$host/serial"
        cards_stop "$host"
    done
}

cards_keys() {
    local number=1
    for key in "${!keys[@]}"; do
        echo "   $key"
        at "$1" pkcs11-tool --module "$opensc" --login --pin "$(<user.pin)" --keypairgen \
            --key-type "${keys[$key]}" --id "0$((number++))" --label "$key" >>"$1.log" 2>&1
    done
}

cards_start() {
    local host=$1 timing=$2
    ip netns exec "$host" hsmux vcard run --count 1 --state "$host/cards" --timing "$timing" >"$host/environment" 2>>"$host.log" &
    echo $! >"$host/cards.pid"
    wait_for 60 "the card of $host" grep HSMUX_VCARD "$host/environment"
}

cards_stop() {
    local id
    read -r id <"$1/cards.pid"
    kill "$id"
    wait "$id" || true
}

# One pool of all three tokens while keys are created on each.
softhsm_prepare() {
    for host in "${hosts[@]}"; do
        mkdir "$host/tokens"
        printf 'directories.tokendir = %s\nlog.level = ERROR\n' "$PWD/$host/tokens" >"$host/softhsm2.conf"
        echo "SOFTHSM2_CONF=$PWD/$host/softhsm2.conf" >"$host/environment"
        at "$host" hsmux token init --module "$softhsm" --label "$host" --pin file:user.pin --so-pin file:so.pin --state "$host/state"
    done
    {
        printf '[pool]\nlabel = "keys"\nreplicas = 3\n[daemon]\nsocket = "keys.sock"\npin = { file = "user.pin" }\nstate = "keys.state"\n'
        for host in "${hosts[@]}"; do
            softhsm_member "$host"
            echo "env = { SOFTHSM2_CONF = \"$host/softhsm2.conf\" }"
        done
    } >keys.toml
    hsmux --config keys.toml serve >keys.log 2>&1 &
    local daemon=$!
    wait_for 60 "the pool of three" hsmux --config keys.toml status --check
    for key in "${!keys[@]}"; do
        spec=${keys[$key]/EC:prime256v1/ec:p256}
        show hsmux --config keys.toml key generate "$spec" --label "$key"
    done
    hsmux --config keys.toml stop
    wait "$daemon"
}

softhsm_start() { :; }
softhsm_stop() { :; }

# The [[token]] of a host's configuration.
cards_member() { member "$opensc" "serial=$(<"$1/serial")"; }
softhsm_member() { member "$softhsm" "token=$1"; }
member() {
    printf '\n[[token]]\nmodule = "%s"\nuri = "pkcs11:%s"\npin = { file = "%s/user.pin" }\n' "$1" "$2" "$CLUSTER_WORK"
}
