#!/bin/sh
# In the lab: what is lost and doubled when processes, links and daemons fail in the middle of transfers: nothing.
set -eu
export EDGE_RUN_LOG="$LAB_DIR/run.log"
. "$HERE/hosts.sh"
cd "$LAB_DIR"
size=${1:-60000000}
fail() { echo "FAIL: $*"; tail -n 30 ./*.log; exit 1; }

# transfer MODE FAULT OPTION: on 4 connections, and a fault in their middle.
transfer() {
	eb timeout 60 "$OUT/pair" serve 10.78.0.2 7100 -m "$1" -n 4 $3 >server.out & server=$!
	serving 7100
	ea timeout 60 "$OUT/pair" connect 10.78.0.2 7100 -m "$1" -n 4 -b "$size" -s "$$" $3 >client.out & client=$!
	until [ "$(moved)" -gt $((size / 1000)) ]; do kill -0 $client 2>/dev/null || break; done
	$2
	wait $client || echo "client ended with $?" >>client.out
	wait $server || echo "server ended with $?" >>server.out
	cat client.out server.out | grep -v ready
	! grep -q FAIL client.out server.out || fail "$1 under $2"
}
# kB that edged's link carried since the last reset.
start=0
moved() { a cat /proc/net/dev | awk -v s="$start" '$1 == "edge0:" { printf "%d\n", ($2 + $10) / 1000 - s }'; }
begin() { start=0; start=$(moved); }

none() { :; }
cut_link() {
	a ip link set edge0 down
	sleep 1
	a ip link set edge0 up
}
kill_client() { kill_pair connect; }
kill_server() { kill_pair serve; }
# Only processes of the lab are seen here: it has its own /proc.
kill_pair() {
	for p in /proc/[0-9]*; do
		if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "^$OUT/pair $1 "; then kill -KILL "${p#/proc/}"; fi
	done
}
restart() {
	kill -KILL "$(cat $1.pid)"
	flock "$1.sock.lock" true # the daemon has ended: it unpins its memory first
	rm -f "$1.sock"
	launch "$1"
	met
}
restart_a() { restart a; }
restart_b() { restart b; }

# What check.sh runs over its stand-in for libedge, over a daemon: a host that dials itself. Not "shared", for which
# what is written must be there at once.
echo "== threads, forks and signals"
for tests in "full sleeper sleepers first range firsts cancels closes heir anywhere handlers" accepts forks; do
	EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 200 "$OUT/edge-run" "$OUT/hard" $tests ||
		fail "hard $tests"
done
[ "$(grep -c "^hard.*: stream" run.log)" -gt 100 ] || fail "these connections were no streams"
EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 60 "$OUT/edge-run" "$OUT/tcp" execs || fail "tcp execs"
[ "$(grep -c "^tcp.*: stream" run.log)" -ge 16 ] || fail "connections of tcp were no streams"
EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 200 "$OUT/edge-run" "$OUT/mix" $(seq 1 10) >mix.out ||
	{ cat mix.out; fail "mix"; }
[ "$(grep -c "^mix.*: stream" run.log)" -gt 100 ] || fail "connections of mix were no streams"

for mode in block edge; do
	echo "== $mode: link cut for a second"
	begin
	transfer $mode cut_link ""
	grep -q "whole 4 cut 0 streams 4" client.out || fail "connections were cut by a pause of the link"
	for fault in kill_client kill_server restart_a restart_b; do
		echo "== $mode: $fault"
		begin
		transfer $mode $fault -c
		[ $fault != restart_a ] || grep -q "cut 4" client.out || fail "a daemon's end was not noticed"
		begin
		short=$size size=4000000; transfer $mode none ""; size=$short
		grep -q "whole 4 cut 0 streams 4" client.out || fail "no streams after $fault"
	done
done
