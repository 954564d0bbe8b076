#!/usr/bin/env bash
# A web cluster on one machine: three hosts, each a network namespace with a (virtual) SmartCard-HSM, a gateway and a
# small site, behind haproxy. `make cluster` builds and calls this.
#
#   scripts/cluster.sh            Measure a short table, beside the published figures.
#   scripts/cluster.sh faults     Stop, kill and cut off hosts under load, and bring them back.
#   scripts/cluster.sh run BASH   Run a command of yours beside haproxy.
#
# TOKENS=softhsm    Use SoftHSM in place of the cards. These take the published 0.658 s for a signature with RSA-2048.
# WORDPRESS=1       Serve WordPress with its default content, and measure its page as well.
# FULL=1            Measure the published table: all keys and loads, 30 s, each cell the best of three.
#                   A second call resumes; RESTART=1 discards earlier results.
# KEYS, HSMS, TIME  Limit the table: KEYS=ec-prime256v1 HSMS="0 3" TIME=5s. 0 HSMs: a key in a file.
# KEEP=1            Keep the cluster until Ctrl+C, and print how to enter it.
# REPORTS=FOLDER    Write reports and logs to this folder.
#
# Everything runs in namespaces of this command: processes, network and mounts end with it, however it ends.
set -euo pipefail
parts=$(dirname "$(realpath "$0")")/cluster

. "$parts/choices.sh"
do=${1:-measure}
case $do in
measure | faults | run) ;;
-h | --help) sed --quiet '1d; /^#/!q; s/^# \{0,1\}//p' "$0"; exit ;;
*) refuse "$0: measure, faults or run, not $do; --help tells more" ;;
esac
[ "$do" != run ] || [ -n "${2-}" ] || refuse "$0 run BASH: what is to be run? KEEP=1 alone gives you a shell among the hosts"
built=${HSMUX_BUILT:-$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$parts/../../target}/release")}
export PATH=$built:$PATH:/usr/sbin

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
[ -z "${WORDPRESS-}" ] || { step "WordPress: a database for all hosts"; wordpress_prepare; }
step "A gateway on each host, haproxy in front"
for host in "${hosts[@]}"; do host_start "$host"; done
for host in "${hosts[@]}"; do host_ready "$host"; done
front_start
show curl --silent --show-error --cacert ca.pem "https://$name/hello.txt"

case $do in
measure) measure ;;
faults) faults ;;
run) bash -euc "$2" ;;
esac
[ -z "${KEEP-}" ] || keep
