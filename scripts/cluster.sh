#!/usr/bin/env bash
# A web cluster on one machine: three hosts, each a network namespace with a SmartCard-HSM of its own (a virtual
# one), a gateway and a small site; haproxy in front of them. `make cluster` builds and calls this.
#
#   scripts/cluster.sh            a short table of measurements beside the published ones
#   scripts/cluster.sh faults     hosts that die, are cut off and return, under load
#   scripts/cluster.sh run BASH   a command of yours in front of the hosts
#
# TOKENS=softhsm    SoftHSM in place of the cards, which take the published 0.658 s for a signature with RSA-2048
# WORDPRESS=1       a second page to measure: WordPress with its default content
# FULL=1            the table as it was published: all loads, 30 s, each cell the best of three
# KEEP=1            leaves the cluster up until Ctrl+C, and says how to get in
# REPORTS=FOLDER    where reports and logs go
#
# Everything happens in namespaces of this command: processes, network and mounts end with it, however it ends.
set -euo pipefail
parts=$(dirname "$(realpath "$0")")/cluster
cd "$parts/../.."

do=${1:-measure}
case $do in measure | faults | run) ;; *) echo "$0: measure, faults or run, not $do" >&2; exit 2 ;; esac
TOKENS=${TOKENS:-cards}
case $TOKENS in cards | softhsm) ;; *) echo "TOKENS is cards or softhsm, not $TOKENS" >&2; exit 2 ;; esac
built=${HSMUX_BUILT:-$(realpath "${CARGO_TARGET_DIR:-target}/release")}
export TOKENS PATH=$built:$PATH:/usr/sbin

needs=(hsmux ip unshare nsenter openssl curl jq socat haproxy pkcs11-tool)
[ "$TOKENS" = cards ] && needs+=(pcscd) || needs+=(softhsm2-util)
[ -z "${WORDPRESS-}" ] || needs+=(mariadbd nginx php)

if [ -z "${CLUSTER_WORK-}" ]; then
    . "$parts/outside.sh"
fi

for part in say network tokens hosts front site wordpress measure faults; do . "$parts/$part.sh"; done
trap 'tell_failure "$?"' EXIT
cd "$CLUSTER_WORK"
umask 022

step "Three hosts and a switch"
network_up
step "Keys: made on the first host's token, copied to the others'"
tokens_prepare
step "A certificate for each key"
site_prepare
step "A gateway on each host, haproxy in front"
for host in "${hosts[@]}"; do host_start "$host"; done
for host in "${hosts[@]}"; do host_ready "$host"; done
front_start
[ -z "${WORDPRESS-}" ] || wordpress_start
show curl --silent --show-error --cacert ca.pem "https://$name/hello.txt"

case $do in
measure) measure ;;
faults) faults ;;
run) bash -euc "$2" ;;
esac
[ -z "${KEEP-}" ] || keep
