#!/usr/bin/env bash
# Configures the running cluster for a cell of the table: HSMUX_HSMS hosts with HSMUX_KEY and HSMUX_PAGE; 0 HSMs are one
# host with the key in a file. `hsmux bench matrix` calls it for each cell; it becomes haproxy (exec) until it is ended.
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
