# The table of measurements beside what was published, and one measurement with all its times.

measure() {
    local module=opensc
    [ "$TOKENS" = cards ] || module=softhsm
    step "One burst through haproxy: 60 users, each hit a handshake of its own"
    show hsmux bench tls "https://$name/hello.txt" --ca ca.pem --users 60 --burst --time "${TIME:-20s}" --timeout 3m \
        --tls 1.3 --groups X25519 --html "$CLUSTER_REPORTS/burst.html"

    step "The table, with 1, 2 and 3 hosts"
    table "$module" >matrix.toml
    front_stop # each cell has one of its own
    show hsmux bench matrix matrix.toml --state cells.json --html "$CLUSTER_REPORTS/matrix.html"
    hsmux bench matrix matrix.toml --state cells.json --json >"$CLUSTER_REPORTS/matrix.json"
    site_use "${!keys[@]}"
    for host in "${hosts[@]}"; do hsmux --config "$host/hsmux.toml" reload >/dev/null; done
    front_start
    printf '\n%sDone in %s s.%s Reports with charts: %s/matrix.html and burst.html\n' \
        "$green$bold" "$SECONDS" "$plain" "$CLUSTER_REPORTS"
}

# Each cell is the best of so many runs, as published; all are in the report.
table() {
    local pages='"static"' best=1 time=${TIME:-20s} loads='{ users = 60 }'
    [ -z "${WORDPRESS-}" ] || pages='"static", "wordpress"'
    if [ -n "${FULL-}" ]; then
        best=3 time=30s
        loads='{ users = 5, think = "5s" }, { users = 10, think = "5s" }, { users = 20, think = "5s" }, { users = 60 }'
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

[[cells]]
key = [$(printf '"%s"\n' "${!keys[@]}" | sort | paste --serial --delimiters ,)]
hsms = [1, 2, 3]
module = "$1"
page = [$pages]
load = [$loads]
start = "$parts/cell.sh"
END_OF_TABLE
}
