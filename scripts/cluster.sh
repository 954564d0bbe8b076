#!/usr/bin/env bash
# A web cluster on one machine: three hosts, each a network namespace with a (virtual) SmartCard-HSM, a gateway and a
# small site, behind haproxy. `make cluster` builds and calls this.
#
#   scripts/cluster.sh            a short table of measurements beside the published ones
#   scripts/cluster.sh faults     hosts that stop, die, are cut off and return, under load
#   scripts/cluster.sh run BASH   a command of yours, run beside haproxy
#
# TOKENS=softhsm    SoftHSM in place of the cards, which take the published 0.658 s for a signature with RSA-2048
# WORDPRESS=1       WordPress with its default content is the site, and a second page to measure
# FULL=1            the published table: all keys and loads, 30 s, each cell the best of three. A second
#                   call resumes; RESTART=1 discards earlier results
# KEYS, HSMS, TIME  less of the table: KEYS=ec-prime256v1 HSMS="0 3" TIME=5s; 0 HSMs are a key in a file
# KEEP=1            keeps the cluster until Ctrl+C, and prints how to enter it
# REPORTS=FOLDER    the folder of reports and logs
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
