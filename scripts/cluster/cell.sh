#!/usr/bin/env bash
# Makes the running cluster that of a cell of the table: HSMUX_HSMS hosts, with HSMUX_KEY, with HSMUX_PAGE; for 0 HSMs
# one host, with the key in a file. `hsmux bench matrix` calls it within the cluster, and ends it after the cell: it
# becomes the haproxy of the cell.
set -euo pipefail
parts=$(dirname "$(realpath "$0")")
for part in say network tokens hosts front site; do . "$parts/$part.sh"; done
cd "$CLUSTER_WORK"

certificate=$HSMUX_KEY behind=$HSMUX_HSMS
[ "$HSMUX_HSMS" -gt 0 ] || certificate=file-$HSMUX_KEY behind=1
site_serve "$HSMUX_PAGE" "$certificate"
for host in "${hosts[@]:0:$behind}"; do
    wait_for 60 "$host with the certificate $certificate" site_shows "$host" "$certificate"
done
front_configure "$behind"
exec haproxy -f haproxy.cfg
