#!/bin/sh
# cost.sh ROUNDS: test/cost.c between the hosts that edge/preload/test/lab.sh lays out.
set -eu
. "$HERE/hosts.sh"
EDGE_SOCKET="$LAB_DIR/a.sock" EDGE_DSM=cost,0,2,a a "$OUT/cost" "$1" & one=$!
EDGE_SOCKET="$LAB_DIR/b.sock" EDGE_DSM=cost,1,2,a b "$OUT/cost" "$1"
wait $one
