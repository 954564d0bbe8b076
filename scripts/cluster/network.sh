# Three network namespaces on a switch. This shell, haproxy and the clients are at the switch.

hosts=(host1 host2 host3)
# From the block for measurements (RFC 2544), invisible outside, because the switch is in a namespace as well.
front=198.18.0.1
name=www.cluster.test
export front name

address() { echo "198.18.0.1${1#host}"; }
on() { ip netns exec "$@"; }

network_up() {
    # /proc is still the machine's own here, so this is the process id that nsenter needs.
    read -r outer_id _ </proc/self/stat
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /run
    printf '127.0.0.1 localhost\n%s %s\n' "$front" "$name" >hosts
    mount --bind hosts /etc/hosts

    ip link set lo up
    ip link add switch type bridge
    ip address add "$front/24" dev switch
    ip link set switch up
    for host in "${hosts[@]}"; do
        ip netns add "$host"
        ip link add "$host" type veth peer name eth0 netns "$host"
        ip link set "$host" master switch up
        ip -n "$host" address add "$(address "$host")/24" dev eth0
        ip -n "$host" link set eth0 up
        ip -n "$host" link set lo up
        mkdir "$host"
        echo "   $host $(address "$host")"
    done
    echo "   haproxy $front ($name)"
}

cut_off() { ip -n "$1" link set eth0 down; }
join_again() { ip -n "$1" link set eth0 up; }
