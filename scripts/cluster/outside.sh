# The part of cluster.sh outside the namespaces: it checks the requirements, calls cluster.sh again inside, and waits.
# Sourced; does not return.

[ "$(id -u)" -eq 0 ] || {
    echo "$0 makes network namespaces: run it as root (sudo make cluster)" >&2
    exit 1
}
missing=()
for need in "${needs[@]}"; do
    [[ $need == /* && -e $need ]] || command -v "$need" >/dev/null || missing+=("$need")
done
[ ${#missing[@]} -eq 0 ] || {
    echo "missing: ${missing[*]}. scripts/deps.sh $packages installs what Debian has, make build makes hsmux" >&2
    exit 1
}

export CLUSTER_WORK CLUSTER_REPORTS
CLUSTER_WORK=$(mktemp -d "${TMPDIR:-/tmp}/hsmux-cluster.XXXXXX")
CLUSTER_REPORTS=$(realpath --canonicalize-missing "${REPORTS:-${TMPDIR:-/tmp}/hsmux-cluster-reports}")
mkdir -p "$CLUSTER_REPORTS"
chmod 755 "$CLUSTER_WORK"
mkdir "$CLUSTER_WORK/tmp"
trap 'rm -rf "$CLUSTER_WORK"' EXIT
[ -z "${WORDPRESS-}" ] || setpriv --reuid www-data --clear-groups test -x "$CLUSTER_WORK" || {
    echo "WordPress runs as www-data, who may not enter ${CLUSTER_WORK%/*}: name another folder by TMPDIR" >&2
    exit 1
}

interrupted() {
    printf '\nInterrupted: all of it has ended.\n'
    [ -z "${FULL-}" ] || echo "The same command goes on where the table was."
}

# The inner shell is process 1 of its namespace: when it ends, the kernel ends all others and the network.
# It ends with unshare, which ends with this shell, even if that is killed.
TMPDIR=$CLUSTER_WORK/tmp setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child "$0" "$@" &
inside=$!
trap 'kill -KILL "$inside"; wait "$inside" 2>/dev/null || true; interrupted; exit 130' INT TERM HUP
wait "$inside" && code=0 || code=$?
exit "$code"
