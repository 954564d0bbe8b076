# haproxy in front, in tcp mode: TLS goes through it to the hosts.

# Over so many of the hosts.
front_configure() {
    cat >haproxy.cfg <<END_OF_CONFIG
global
    maxconn 4000
    stats socket $CLUSTER_WORK/haproxy.sock mode 600 level admin expose-fd listeners

defaults
    mode tcp
    timeout connect 1s
    timeout client 5m
    timeout server 5m
    # A host that does not take the connection: the next one gets it.
    retries 3
    option redispatch 1
    # A host that has fallen silent: its connections end after some seconds. (on-marked-down shutdown-sessions would
    # end them as well, and with them those that are about to be given to another host.)
    option srvtcpka
    srvtcpka-idle 1s
    srvtcpka-intvl 1s
    srvtcpka-cnt 3

frontend web
    bind $front:443
    default_backend hosts

backend hosts
    balance leastconn
    option httpchk GET /health
    default-server check port 9443 inter 500ms fall 2 rise 2 send-proxy-v2 tcp-ut 3s
$(for host in "${hosts[@]:0:$1}"; do echo "    server $host $(address "$host"):443"; done)
END_OF_CONFIG
}

front_start() {
    front_configure "${#hosts[@]}"
    show haproxy -c -q -f haproxy.cfg
    haproxy -W -f haproxy.cfg >>haproxy.log 2>&1 &
    haproxy=$!
    wait_for 30 "a page through haproxy" \
        curl --silent --fail --max-time 20 --cacert ca.pem "https://$name/hello.txt"
}

front_stop() {
    kill -TERM "$haproxy"
    wait "$haproxy" || true
}

# As systemctl reload haproxy does: a new process takes over the sockets, the old one ends with its last connection.
front_reload() { kill -USR2 "$haproxy"; }

# haproxy's own command line; of its table of hosts: 5 is how many connections one has, 18 its state.
front_ask() { socat -t 10 stdio "unix-connect:$CLUSTER_WORK/haproxy.sock" <<<"$1"; }
front_column() { front_ask 'show stat' | awk -F, -v host="$1" -v column="$2" '$1 == "hosts" && $2 == host { print $column }'; }
