#!/bin/sh
# mpirun's remote shell in the lab: agent.sh HOST COMMAND...: runs it in host b.
shift
exec nsenter -n -t "$LAB_B" env EDGE_SOCKET="$LAB_DIR/b.sock" sh -c "$*"
