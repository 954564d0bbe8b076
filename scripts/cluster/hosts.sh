# A host: its card, a gateway with the site, and WordPress as back end if selected.

# Writes the configuration; its last section is the [[site]], replaced for each measured key.
host_configure() {
    local host=$1
    {
        cat <<END_OF_CONFIG
[pool]
label = "web"
deadline = "3m"                     # sixty users wait 40 s for one card

[daemon]
socket = "hsmux.sock"
pin = { file = "$CLUSTER_WORK/user.pin" }

[gateway]
listen = ["0.0.0.0:443"]
metrics = "0.0.0.0:9443"
proxy_protocol = true
proxy_from = ["0.0.0.0/0"]          # the cell has no other clients
sign_timeout = "3m"
END_OF_CONFIG
        "${TOKENS}_member" "$host"
    } >"$host/base.toml"
}

declare -A gateways=()

# Starts the card first, with the published times.
host_start() {
    local host=$1
    "${TOKENS}_start" "$host" "${TIMING:-smartcard-hsm}"
    at "$host" hsmux --config "$host/hsmux.toml" gateway >>"$host.log" 2>&1 &
    gateways[$host]=$!
    [ "$page" = static ] || wordpress_serve "$host"
}

host_ready() {
    wait_for 120 "$1 can sign" curl --silent --fail --max-time 5 "http://$(address "$1"):9443/health"
    echo "   $1 can sign: its /health says so"
    [ "$page" = static ] || wait_for 60 "WordPress behind $1" wordpress_answers "$1"
}

# Like a power cut: kills every process of the host at once, because a stopping one still accepts connections.
host_kill() {
    ip netns pids "$1" | xargs --no-run-if-empty kill -KILL
    wait_for 30 "the end of $1's processes" host_is_dead "$1"
}

# A process whose first thread has ended is not listed, but its other threads may still hold its sockets.
host_is_dead() { [ -z "$(ip netns pids "$1")$(ip netns exec "$1" ss -Hltn)" ]; }
