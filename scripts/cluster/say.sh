# Output of the cluster.

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' plain=$'\e[0m'; else bold= dim= green= plain=; fi

step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
# Shows a command as a user would type it, then runs it.
show() {
    printf '%s$' "$dim"; printf ' %s' "${@//"$CLUSTER_WORK/"/}"; printf '%s\n' "$plain"
    "$@"
}

# wait_for SECONDS WHAT COMMAND...: repeats the command until it succeeds.
wait_for() {
    local seconds=$1 what=$2 deadline=$((SECONDS + $1))
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "$what: not within $seconds s" >&2; return 1; }
        sleep 0.1
    done
}

tell_failure() {
    [ "$1" -ne 0 ] || return 0
    cp "$CLUSTER_WORK"/*.log* "$CLUSTER_REPORTS" 2>/dev/null || true
    printf '\nThe cluster has failed (exit code %s). The ends of its logs, all of them in %s:\n' "$1" "$CLUSTER_REPORTS" >&2
    tail -n 8 "$CLUSTER_WORK"/*.log >&2 2>/dev/null || true
}

keep() {
    cat <<END_OF_HINT

${bold}The cluster is up until Ctrl+C.$plain In another terminal, as root:

  nsenter --all --target $outer_id bash       # a shell in front of the three hosts
  cd $CLUSTER_WORK; export PATH=$built:\$PATH
  curl --cacert ca.pem https://$name/hello.txt
  hsmux bench tls https://$name/hello.txt --ca ca.pem -c 60 -b
  ip netns exec host2 hsmux --config host2/hsmux.toml status
  ip -n host2 link set eth0 down              # cuts host2 off; up: it is back

END_OF_HINT
    sleep infinity
}
