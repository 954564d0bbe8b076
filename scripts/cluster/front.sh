# haproxy in front, in tcp mode: it passes TLS on to the hosts.

# Configures it for the first hosts, which all have the same [gateway].
front_configure() {
    local addresses=() host
    for host in "${hosts[@]:0:$1}"; do addresses+=("$(address "$host")"); done
    show hsmux --config host1/hsmux.toml haproxy config "${addresses[@]}" --listen "$front:443" \
        --socket haproxy.sock --out haproxy.cfg
}

front_start() {
    front_configure "${#hosts[@]}"
    haproxy -W -f haproxy.cfg >>haproxy.log 2>&1 &
    haproxy=$!
    wait_for 30 "a page through haproxy" \
        curl --silent --fail --max-time 20 --cacert ca.pem "https://$name/hello.txt"
}

front_stop() {
    kill -TERM "$haproxy"
    wait "$haproxy" || true
}

# Like `systemctl reload haproxy`: a new process takes over the sockets, the old one ends with its last connection.
front_reload() { kill -USR2 "$haproxy"; }

# haproxy's state of a host: UP or DOWN, with optional details.
front_state() {
    socat -t 10 stdio "unix-connect:$CLUSTER_WORK/haproxy.sock" <<<'show stat' |
        awk -F, -v host="$1" '$1 == "gateways" && $2 == host { print $18 }'
}
