#!/usr/bin/env bash
# Makes the running cluster that of a cell of the table: HSMUX_HSMS hosts, with HSMUX_KEY, with HSMUX_PAGE.
# `hsmux bench matrix` calls it within the cluster, and ends it after the cell: it becomes the haproxy of the cell.
set -euo pipefail
parts=$(dirname "$(realpath "$0")")
for part in say network tokens hosts front site; do . "$parts/$part.sh"; done
cd "$CLUSTER_WORK"

site_use "$HSMUX_PAGE" "$HSMUX_KEY"
for host in "${hosts[@]}"; do
    hsmux --config "$host/hsmux.toml" reload
    wait_for 60 "$host with the certificate for $HSMUX_KEY" site_shows "$host" "$HSMUX_KEY"
done
front_configure "$HSMUX_HSMS"
exec haproxy -f haproxy.cfg
