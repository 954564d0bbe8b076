# Hosts that die, are cut off and return, and reloads of haproxy, under load.
#
# Requests that begin after a fault must not fail. At a host's death each user may lose one request of the steady load,
# because haproxy cannot move TLS connections to another host. If a host stops or haproxy reloads, none may fail.

steady_users=12
declare -A before_load=()

faults() {
    step "A host is told to end, and returns"
    under_load none_fail host_leaves
    step "A host dies: all of its processes are killed at once, and started again"
    under_load those_under_way_fail host_dies
    step "A host is cut off: its link is down, and up again"
    under_load those_under_way_fail host_is_cut_off
    step "haproxy is reloaded: a new process takes over its sockets"
    under_load none_fail haproxy_reloads
    printf '\n%sDone in %s s.%s No request that began after a fault has failed.\n' "$green$bold" "$SECONDS" "$plain"
}

# under_load JUDGE FAULT: runs the fault under steady load, then judges the load.
under_load() {
    # A burst as in siege, until it is interrupted.
    hsmux bench tls "https://$name/hello.txt" --ca ca.pem --users "$steady_users" --burst --time 10m --timeout 2m \
        --json >steady.json 2>steady.log &
    local load=$!
    wait_for 60 "load on all hosts" all_hosts_sign
    "$2"
    kill -INT "$load"
    wait "$load" || true
    "$1" "$2"
}

none_fail() { judge "$1" 0; }
those_under_way_fail() { judge "$1" "$steady_users"; }

judge() {
    local hits failed
    read -r hits failed < <(jq --raw-output '"\(.figures.transactions) \(.figures.failed)"' steady.json)
    echo "   steady load, $steady_users users: $hits requests answered, $failed failed (allowed: $2)"
    [ "$hits" -gt 0 ] && [ "$failed" -le "$2" ] || { echo "$1: that is too many" >&2; return 1; }
}

# Sends new requests, which must all be answered.
new_requests() {
    hsmux bench tls "https://$name/hello.txt" --ca ca.pem --users 6 --hits 5 --burst --timeout 2m --json >new.json ||
        { jq .figures new.json >&2; echo "new requests have failed: $1" >&2; return 1; }
    echo "   $1: $(jq .figures.transactions new.json) new requests, all answered"
}

host_leaves() {
    hsmux --config host2/hsmux.toml stop
    new_requests "host2 ends"
    wait "${gateways[host2]}"
    new_requests "host2 has ended"
    host_kill host2 # its card
    host_back
}

host_dies() {
    host_kill host2
    new_requests "host2 is dead"
    wait_for 30 "haproxy leaves host2 out" front_says DOWN host2
    new_requests "haproxy knows"
    host_back
}

host_back() {
    host_start host2
    host_ready host2
    host_serves
}

host_is_cut_off() {
    cut_off host2
    new_requests "host2 is cut off"
    wait_for 30 "haproxy leaves host2 out" front_says DOWN host2
    new_requests "haproxy knows"
    on host2 curl --silent --fail --max-time 30 --haproxy-protocol --cacert ca.pem \
        --connect-to "$name:443:$(address host2):443" "https://$name/hello.txt" >/dev/null
    echo "   host2 itself goes on serving, by its own token"
    join_again host2
    host_serves
}

host_serves() {
    wait_for 60 "haproxy takes host2 again" front_says UP host2
    local before
    before=$(signatures host2)
    wait_for 60 "host2 signs again" signs_beyond host2 "$before"
    new_requests "host2 signs again"
}

haproxy_reloads() {
    for _ in 1 2 3; do
        front_reload
        new_requests "haproxy is reloaded"
    done
}

front_says() { [[ $(front_state "$2") == "$1"* ]]; }

signatures() {
    curl --silent --fail --max-time 5 "http://$(address "$1"):9443/metrics" |
        awk '/^hsmux_gateway_signatures_total/ { sum += $NF } END { print sum + 0 }'
}
signs_beyond() { [ "$(signatures "$1")" -gt "$2" ]; }

all_hosts_sign() {
    for host in "${hosts[@]}"; do
        [ -n "${before_load[$host]-}" ] || before_load[$host]=$(signatures "$host")
        signs_beyond "$host" "${before_load[$host]}" || return 1
    done
    before_load=()
}
