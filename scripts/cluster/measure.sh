# The table of measurements beside published figures, and one measurement with all its times.

measure() {
    local table=matrix failed=0 begin=(--restart)
    if [ -n "${FULL-}" ]; then
        table=full
        # Resumes by default, because a table takes two hours.
        [ -n "${RESTART-}" ] || begin=()
    fi
    step "One burst through haproxy: 60 users, each hit a handshake of its own"
    show hsmux bench tls "https://$name/hello.txt" --ca ca.pem --users 60 --burst --time "${TIME:-20s}" --timeout 3m \
        --tls 1.3 --groups X25519 --html "$CLUSTER_REPORTS/burst.html"

    step "The table: keys in files of one host, then in the tokens of one, two and three"
    [[ " $HSMS " != *" 0 "* ]] || for key in $KEYS; do site_file "$key"; done
    front_stop # each cell has one of its own
    cd "$CLUSTER_REPORTS"
    # The table is beside its state, because a cell's identity includes its folder.
    cp "$CLUSTER_WORK/ca.pem" .
    table >"$table.toml"
    [ ${#begin[@]} -gt 0 ] || [ ! -e "$table.state" ] || echo "   what an earlier start has measured stands; RESTART=1 begins anew"
    show hsmux bench matrix "$table.toml" --state "$table.state" "${begin[@]}" --html "$table.html" || failed=$?
    [ "$failed" -ne 0 ] || hsmux bench matrix "$table.toml" --state "$table.state" --json >"$table.json"
    cd "$CLUSTER_WORK"
    site_serve "$page" "${!keys[@]}"
    front_start
    if [ "$failed" -ne 0 ]; then
        echo "Some cells could not be measured: $CLUSTER_REPORTS/$table.html says why, $table.state.log more" >&2
        return "$failed"
    fi
    printf '\n%sDone in %s s.%s Reports with charts: %s/%s.html and burst.html\n' \
        "$green$bold" "$SECONDS" "$plain" "$CLUSTER_REPORTS" "$table"
}

# The loads of the published runs; a short table has one for each page. Each cell is the best of several runs,
# as published; the report has all.
table() {
    local best=1 time=${TIME:-20s} static='{ users = 60 }' wordpress='{ users = 10, think = "5s" }'
    if [ -n "${FULL-}" ]; then
        best=3 time=${TIME:-30s}
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
    rows static "$static"
    [ -z "${WORDPRESS-}" ] || rows wordpress "$wordpress"
}

# The cells of a page: without tokens, then with each number of tokens.
rows() {
    local hsms key module=opensc in_tokens=()
    [ "$TOKENS" = cards ] || module=softhsm
    for key in $KEYS; do [ -z "${keys[$key]-}" ] || in_tokens+=("$key"); done
    for hsms in $HSMS; do
        if [ "$hsms" -gt 0 ]; then cells "$@" "$hsms" "$module" "${in_tokens[@]}"; else cells "$@" 0 "key in a file" $KEYS; fi
    done
}

# cells PAGE LOADS HSMS MODULE KEY...
cells() {
    cat <<END_OF_TABLE

[[cells]]
key = [$(printf '"%s", ' "${@:5}")]
hsms = $3
module = "$4"
page = "$1"
load = [$2]
start = '"$parts/cell.sh"'
END_OF_TABLE
}
