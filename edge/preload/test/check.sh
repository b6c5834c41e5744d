#!/bin/sh
# check.sh OUT: libedge-preload over its stand-in for libedge: no daemon, no privileges. Traffic is on loopback.
set -eu
out=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export EDGE_RUN_LIBRARY="$out/standin/libedge-preload.so" EDGE_SOCKET="preload-check-$$" EDGE_RUN_MAP="127.0.0.1=peer"

timeout 60 "$out/own"
"$out/edge-run" "$out/unit"
"$out/edge-run" "$out/edge-run" "$out/unit" twice # preloaded twice is preloaded once

for run in env "$out/edge-run"; do # what they want of streams is what TCP does
	timeout 120 $run "$out/tcp"
	timeout 120 $run "$out/signals"
	timeout 120 $run "$out/forks"
	timeout 60 $run "$out/rules"
	timeout 120 $run "$out/mix" $(seq 1 10) >"$dir/mix" || { cat "$dir/mix"; exit 1; }
done
# Not all: sockets of the stand-in's have low numbers.
for tests in dups first forked twins nested raw ringed liburing; do
	timeout 60 "$out/fds" $tests
	timeout 60 "$out/edge-run" "$out/fds" $tests
done
EDGE_RUN_REQUIRE=1 timeout 60 "$out/edge-run" "$out/rules" required 2>"$dir/required" || { cat "$dir/required"; exit 1; }
EDGE_RUN_REQUIRE=1 timeout 60 "$out/rules" with-ring "$out/edge-run" "$out/rules" barred 2>"$dir/required" || {
	cat "$dir/required"; exit 1
}
STANDIN_LOST=1 timeout 120 "$out/edge-run" "$out/tcp" again
STANDIN_PAUSE=5 timeout 120 "$out/edge-run" "$out/signals" restarts # while the program polls
STANDIN_PAUSE=5 STANDIN_LINGER=1 timeout 120 "$out/edge-run" "$out/signals" restarts

"$out/edge-run" "$out/hard" uncancelled full sleeper sleepers leaver first range firsts cancels closes heir anywhere handlers
STANDIN_PAUSE=2 "$out/edge-run" "$out/hard" accepts
STANDIN_SLOW=600 STANDIN_LOOKS=300 "$out/edge-run" "$out/hard" slow
STANDIN_LOOKS=300 "$out/edge-run" "$out/hard" shared
STANDIN_SILENT=open "$out/edge-run" "$out/hard" many
STANDIN_SILENT=listen "$out/edge-run" "$out/hard" many
STANDIN_DOWN=1 "$out/edge-run" "$out/hard" forks

# Rules that are not in force are told of.
said() { # WANTED COMMAND...
	words=$1
	shift
	"$@" 2>&1 | grep -qF "$words" || { echo "want \"$words\" of: $*"; exit 1; }
}
said "$dir/none: No such file" env EDGE_RUN_CONFIG="$dir/none" "$out/edge-run" true
ln -s "$out" "$dir/with blank"
said "takes no path with a blank" env EDGE_RUN_LIBRARY="$dir/with blank/libedge-preload.so" "$out/edge-run" true
said '"host=peer" is passed over' env EDGE_RUN_MAP="host=peer" "$out/edge-run" true
EDGE_RUN_CONFIG=/dev/null EDGE_RUN_MAP="" EDGE_RUN_LOG="$dir/log" "$out/edge-run" true
said "EDGE_RUN_MAP name no peer" cat "$dir/log"
EDGE_RUN_LOG="$dir/silent" timeout 60 "$out/edge-run" "$out/rules" silent
said "tcp: the other side uses it" cat "$dir/silent"

pair() { # a transfer; what both sides print last
	rm -f "$dir/server"
	serve=$1 connect=$2
	shift 2
	$serve timeout 60 "$out/pair" serve 127.0.0.1 0 "$@" >"$dir/server" & server=$!
	until grep -qs ready "$dir/server"; do kill -0 $server; done
	port=$(sed -n 's/^ready //p' "$dir/server")
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
EDGE_RUN_LOG="$dir/down" STANDIN_DOWN=1 pair "$out/edge-run" "$out/edge-run" -n 4 -b 300000
want "without a daemon" 0
said "edged: the stand-in is down" cat "$dir/down"
[ "$(grep -c "] 127.0.0.1:$port: tcp: without a daemon" "$dir/down")" -ge 4 ] || {
	echo "not every connection is told of"; cat "$dir/down"; exit 1
}
STANDIN_PEER=other pair "$out/edge-run" "$out/edge-run" -n 4 -b 300000
want "another peer than the map names" 0
echo "preload: ok"
