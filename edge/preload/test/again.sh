#!/bin/sh
# In the lab: connections that use a stream again. again.sh [NAME...]
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
fail() { echo "FAIL: $*"; tail -n 30 ./*.log ./*.out; exit 1; }
# server NAME PORT MARK ARGUMENTS...: one that takes lines from the fifo NAME.in, by descriptor 5 or 6
server() {
	rm -f "$1.in"; mkfifo "$1.in"
	EDGE_RUN_REUSE=1 EDGE_RUN_LOG=$LAB_DIR/$1.log eb timeout 100 "$OUT/again" serve "$2" "$3" ${4:-} <"$1.in" >"$1.out" &
}
ask() { # PORT MARK N
	EDGE_RUN_REUSE=1 EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" ask 10.78.0.2 "$@" >ask.out || fail "ask $*: $(cat ask.out)"
}
streams() { grep -c ": stream" "$1.log" || :; }
again() { grep -c ": stream, on a connection that was there" "$1.log" || :; }
done_by() { until [ "$(grep -c done "$1.out")" -ge "$2" ]; do kill -0 $! || fail "$1 ended"; sleep 0.05; done; }

# Most connections of a program that sets up many use streams that were there, at both ends. On a machine that is too
# busy for two seconds all stay with TCP for a while: then once more, here and below.
try_many() {
	for round in 1 2 3 4 5; do
		echo "== many"
		: >client.log; : >x.log
		server x 6401 x; exec 5>x.in; serving 6401
		ask 6401 x 300
		exec 5>&-; wait $!
		echo "$(again client) of $(streams client) streams, and at the server $(again x) of $(streams x)"
		[ "$(again x)" = "$(again client)" ] || fail "the ends do not agree"
		[ "$(again client)" -lt 150 ] || return 0
	done
	fail "streams were not used again"
}

# The port is another process's from one connection to the next: it gets the connections, as streams, though the first
# one lives on and has streams at rest.
try_moved() {
	for round in 1 2 3 4 5; do
		echo "== the listening socket moves to another process"
		: >client.log; : >x.log; : >y.log
		server x 6402 x; exec 5>x.in; serving 6402
		ask 6402 x 1
		rm -f both; mkfifo both; EDGE_RUN_REUSE=1 EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 sh -c "
			'$OUT/again' ask 10.78.0.2 6402 x 5; echo >both; read go <both" >/dev/null & wait_for=$!
		timeout 60 head -n 1 both >both.line
		echo close >&5
		done_by x 1
		server y 6402 y; exec 6>y.in; serving 6402
		echo go >both; wait $wait_for
		ask 6402 y 20
		exec 5>&- 6>&-; wait
		echo "$(streams y) streams of the second process"
		grep -q "not taken in time" client.log || [ "$(streams y)" -eq 0 ] || return 0
	done
	fail "the first process was asked, or no connection to the second one was a stream"
}

# Of a server that has forked nobody knows in which process a connection arrives: each gets a stream of its own.
try_forks() {
	for round in 1 2 3 4 5; do
		echo "== a server that forks"
		: >client.log; : >x.log
		server x 6403 x forks; exec 5>x.in; serving 6403
		ask 6403 x 60
		exec 5>&-; wait
		echo "$(again client) of $(streams client) streams"
		[ "$(again client)" -lt 5 ] || fail "streams were used again after the first fork"
		[ "$(streams client)" -le 30 ] || return 0
	done
	fail "too many stayed with TCP"
}
for name in ${*:-many moved forks}; do "try_$name"; done
echo "again: ok"
