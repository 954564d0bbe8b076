# The table of measurements beside what was published, and one measurement with all its times.

measure() {
    local module=opensc page=static
    [ "$TOKENS" = cards ] || module=softhsm
    step "One burst through haproxy: 60 users, each hit a handshake of its own"
    show hsmux bench tls "https://$name/hello.txt" --ca ca.pem --users 60 --burst --time "${TIME:-20s}" --timeout 3m \
        --tls 1.3 --groups X25519 --html "$CLUSTER_REPORTS/burst.html"

    step "The table, with 1, 2 and 3 hosts"
    table "$module" >matrix.toml
    front_stop # each cell has one of its own
    show hsmux bench matrix matrix.toml --state cells.json --html "$CLUSTER_REPORTS/matrix.html"
    hsmux bench matrix matrix.toml --state cells.json --json >"$CLUSTER_REPORTS/matrix.json"
    [ -z "${WORDPRESS-}" ] || page=wordpress
    site_use "$page" "${!keys[@]}"
    for host in "${hosts[@]}"; do hsmux --config "$host/hsmux.toml" reload >/dev/null; done
    front_start
    printf '\n%sDone in %s s.%s Reports with charts: %s/matrix.html and burst.html\n' \
        "$green$bold" "$SECONDS" "$plain" "$CLUSTER_REPORTS"
}

# The loads of the published runs, of which a short table has one for each page. Each cell is the best of so many runs,
# as published; all are in the report.
table() {
    local best=1 time=${TIME:-20s} static='{ users = 60 }' wordpress='{ users = 10, think = "5s" }'
    if [ -n "${FULL-}" ]; then
        best=3 time=30s
        static='{ users = 5, think = "5s" }, { users = 10, think = "5s" }, { users = 20, think = "5s" }, { users = 60 }'
        wordpress='{ users = 10, think = "5s" }, { users = 20, think = "5s" }'
    fi
    cat <<END_OF_TABLE
best_of = $best

[client]
time = "$time"
timeout = "3m"
ca = "ca.pem"
tls = "1.3"
groups = "X25519"

[pages.static]
url = "https://$name/hello.txt"

[pages.wordpress]
url = "https://$name/"
follow = true
END_OF_TABLE
    cells "$1" static "$static"
    [ -z "${WORDPRESS-}" ] || cells "$1" wordpress "$wordpress"
}

cells() {
    cat <<END_OF_TABLE

[[cells]]
key = [$(printf '"%s"\n' "${!keys[@]}" | sort | paste --serial --delimiters ,)]
hsms = [1, 2, 3]
module = "$1"
page = "$2"
load = [$3]
start = "$parts/cell.sh"
END_OF_TABLE
}
