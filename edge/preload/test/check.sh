#!/bin/sh
# check.sh OUT: libedge-preload over its stand-in for libedge: no daemon, no privileges. Traffic is on loopback.
set -eu
out=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export EDGE_RUN_LIBRARY="$out/standin/libedge-preload.so" EDGE_SOCKET="preload-check-$$" EDGE_RUN_MAP="127.0.0.1=peer"

"$out/edge-run" "$out/unit"
"$out/edge-run" "$out/edge-run" "$out/unit" twice # preloaded twice is preloaded once

"$out/edge-run" "$out/hard" full sleeper sleepers first range cancels handlers exits
STANDIN_PAUSE=2 "$out/edge-run" "$out/hard" accepts
STANDIN_SLOW=600 STANDIN_LOOKS=300 "$out/edge-run" "$out/hard" slow
STANDIN_LOOKS=300 "$out/edge-run" "$out/hard" shared
STANDIN_DOWN=1 "$out/edge-run" "$out/hard" forks

port=$((20000 + $$ % 20000))
pair() { # a transfer; what both sides print last
	port=$((port + 1))
	rm -f "$dir/server"
	serve=$1 connect=$2
	shift 2
	$serve timeout 60 "$out/pair" serve 127.0.0.1 $port "$@" >"$dir/server" & server=$!
	until grep -qs ready "$dir/server"; do kill -0 $server; done
	$connect timeout 60 "$out/pair" connect 127.0.0.1 $port "$@" >"$dir/client" || { cat "$dir/client" "$dir/server"; exit 1; }
	wait $server || { cat "$dir/server"; exit 1; }
}
want() { # MODE STREAMS
	grep -q "whole 4 cut 0 streams $2" "$dir/client" || { echo "$1: want $2 streams"; cat "$dir/client"; exit 1; }
	grep -q "whole 4 cut 0 streams $2" "$dir/server" || { echo "$1: want $2 streams"; cat "$dir/server"; exit 1; }
}
for mode in block poll select epoll edge; do
	for seed in 1 2; do
		pair "$out/edge-run" "$out/edge-run" -m $mode -n 4 -b 1500000 -s $seed
		want $mode 4
	done
	pair "$out/edge-run" env -m $mode -n 4 -b 300000
	want "$mode, plain client" 0
	pair env "$out/edge-run" -m $mode -n 4 -b 300000
	want "$mode, plain server" 0
done
pair "$out/edge-run" "$out/edge-run" -m block -f -n 4 -b 300000
want "fork after accept" 4
EDGE_RUN_SKIP=pair pair "$out/edge-run" "$out/edge-run" -n 4 -b 300000
want "skipped" 0
STANDIN_DOWN=1 pair "$out/edge-run" "$out/edge-run" -n 4 -b 300000
want "without a daemon" 0
STANDIN_PEER=other pair "$out/edge-run" "$out/edge-run" -n 4 -b 300000
want "another peer than the map names" 0
echo "preload: ok"
