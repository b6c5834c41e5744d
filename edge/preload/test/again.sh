#!/bin/sh
# In the lab: connections that use a stream again. again.sh [NAME...]
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
fail() { echo "FAIL: $*"; tail -n 30 ./*.log ./*.out; exit 1; }
# server NAME PORT MARK ARGUMENTS...: one that takes lines from the fifo NAME.in, by descriptor 5 or 6
server() {
	rm -f "$1.in"; mkfifo "$1.in"
	EDGE_RUN_LOG=$LAB_DIR/$1.log eb timeout 100 "$OUT/again" serve "$2" "$3" ${4:-} <"$1.in" >"$1.out" &
}
ask() { # PORT MARK N
	EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" ask 10.78.0.2 "$@" >ask.out ||
		fail "ask $*: $(cat ask.out)"
}
begins() { # NAME PORT N
	EDGE_SOCKET=$LAB_DIR/a.sock a timeout 60 "$OUT/begins" "$1" 10.78.0.2 "$2" >begins.out ||
		fail "$1: $(cat begins.out)"
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
# one lives on and the client has streams that rest there. That counts if it is done before the client forgets them.
try_moved() {
	for round in 1 2 3 4 5; do
		echo "== the listening socket moves to another process"
		for f in client x y; do : >$f.log; done
		server x 6402 x; exec 5>x.in; serving 6402
		server y 6402 y waits; exec 6>y.in
		rm -f ask.in; mkfifo ask.in; : >ask.out
		EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" ask 10.78.0.2 6402 x 5 y 20 <ask.in >ask.out &
		asks=$!
		exec 7>ask.in
		until grep -q connections ask.out; do kill -0 $asks || fail "no answer of x"; done
		echo close >&5
		until grep -q done x.out; do :; done
		echo listen >&6
		serving 6402
		echo go >&7
		wait $asks || fail "ask: $(cat ask.out)"
		exec 5>&- 6>&- 7>&-; wait
		took=$(sed -n 's/ ms$//p' ask.out)
		echo "moved in $took ms; $(streams y) streams of the second process"
		! grep -q "not taken in time" client.log || fail "the first process was asked"
		[ "$took" -gt 800 ] || [ "$(again client)" -eq 0 ] || [ "$(streams y)" -eq 0 ] || return 0
	done
	fail "no connection to the second process was a stream"
}

# The connector has given a stream up when the acceptor's answer comes: both go on over TCP, and nothing is lost.
try_gives() {
	echo "== a stream that was taken is given up"
	server x 6404 x; exec 5>x.in; serving 6404
	begins gives 6404
	exec 5>&-; wait
	grep -q "tcp: the other side gave the stream up\|tcp: the other side uses it" x.log ||
		fail "the stream was not given up"
}

# A stream is begun when the acceptor has settled for TCP: it says so.
try_late() {
	echo "== a stream is begun too late"
	: >x.log
	server x 6405 x polls; exec 5>x.in; serving 6405
	rm -f late.in; mkfifo late.in
	EDGE_SOCKET=$LAB_DIR/a.sock a timeout 60 "$OUT/begins" late 10.78.0.2 6405 <late.in >begins.out & late=$!
	exec 6>late.in
	until grep -q "tcp: not offered" x.log; do kill -0 $late || fail "late: $(cat begins.out)"; done
	echo go >&6
	wait $late || fail "late: $(cat begins.out)"
	exec 5>&- 6>&-; wait
}

# A peer that begins streams and makes no connections has at most as many as a server keeps.
try_only() {
	echo "== streams are begun without connections"
	server x 6406 x; exec 5>x.in; serving 6406
	rm -f only.in; mkfifo only.in
	EDGE_SOCKET=$LAB_DIR/a.sock a timeout 60 "$OUT/begins" only 10.78.0.2 6406 40 <only.in >begins.out & only=$!
	exec 6>only.in
	until grep -q begun begins.out; do kill -0 $only || fail "only: $(cat begins.out)"; done
	b "$BIN/edgectl" -s b.sock -j conn >conns.json
	had=$(grep -o '"tcp/10[^"]*6406"' conns.json | sort -u | wc -l)
	echo "$(cat begins.out), $had are there"
	[ "$had" -le 32 ] || fail "a peer keeps $had streams"
	ask 6406 x 20
	echo go >&6
	wait $only
	exec 5>&- 6>&-; wait
}

# EDGE_RUN_REUSE=0 at one end: each connection gets a stream of its own.
try_off() {
	for end in client server; do
		echo "== not used again, says the $end"
		: >client.log; : >x.log
		[ $end = client ] || export EDGE_RUN_REUSE=0
		server x 6407 x; exec 5>x.in; serving 6407
		export EDGE_RUN_REUSE=0
		[ $end = client ] || unset EDGE_RUN_REUSE
		ask 6407 x 30
		unset EDGE_RUN_REUSE
		exec 5>&-; wait
		[ "$(again client)" = 0 ] || fail "$(again client) streams were used again"
		[ "$(streams client)" -gt 0 ] || fail "no streams"
	done
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
for name in ${*:-many moved forks gives late only off}; do "try_$name"; done
echo "again: ok"
