#!/bin/sh
# In the lab: connections that use a stream again. again.sh [NAME...]
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
fail() { echo "FAIL: $*"; tail -n 30 ./*.log ./*.out; exit 1; }
# server NAME PORT MARK ARGUMENTS...: one that takes lines from the fifo NAME.in, by descriptor 5 or 6
server() {
	rm -f "$1.in"; mkfifo "$1.in"
	: >"$1.out"
	EDGE_RUN_LOG=$LAB_DIR/$1.log eb timeout 100 "$OUT/again" serve "$2" "$3" ${4:-} <"$1.in" >"$1.out" &
}
ask() { # PORT MARK N; HOW=hears: of a server that speaks first
	EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" "${HOW:-ask}" 10.78.0.2 "$@" >ask.out ||
		fail "ask $*: $(cat ask.out)"
}
# begins NAME PORT ARGUMENTS...: one that takes lines by descriptor 6. Its id is in $begins.
begins() {
	name=$1 port=$2
	shift 2
	rm -f begins.in; mkfifo begins.in; : >begins.out
	EDGE_SOCKET=$LAB_DIR/a.sock a timeout 60 "$OUT/begins" "$name" 10.78.0.2 "$port" "$@" <begins.in >begins.out &
	begins=$!
	exec 6>begins.in
}
# Ends it, and the server. false: a machine that was too busy for what it wants of time; bytes that differ are no such
# case.
begins_well() {
	ok=true
	wait $begins || ok=false
	exec 5>&- 6>&-
	wait
	! grep "FAIL.*memcmp" begins.out x.out || fail "bytes differ"
	$ok || cat begins.out
	$ok
}
# some FILE WORDS PID: waits until the file has the words. false: the process ended before.
some() {
	until grep -q "$2" "$1"; do
		kill -0 "$3" 2>/dev/null || grep -q "$2" "$1" || return 1
		sleep 0.02
	done
}
rounds() { # COMMAND...: up to 5 times, until it succeeds
	for round in 1 2 3 4 5; do
		! "$@" || return 0
	done
	fail "$*"
}
streams() { grep -c ": stream" "$1.log" || :; }
again() { grep -c ": stream, on a connection that was there" "$1.log" || :; }

# Most connections of a program that sets up many use streams that were there, at both ends. On a machine that is too
# busy for two seconds all stay with TCP for a while: then once more, here and below.
try_many() {
	for how in "" polls banner; do many_to "$how"; done
}
many_to() { # HOW
	for round in 1 2 3 4 5; do
		echo "== many${1:+, to one that has $1}"
		: >client.log; : >x.log
		server x 6401 x $1; exec 5>x.in; serving 6401
		HOW=ask
		[ "$1" != banner ] || HOW=hears
		ask 6401 x 300
		HOW=
		exec 5>&-; wait $!
		echo "$(again client) of $(streams client) streams, and at the server $(again x) of $(streams x)"
		[ "$(again x)" = "$(again client)" ] || fail "the ends do not agree"
		[ "$(again client)" -lt 150 ] || return 0
	done
	fail "streams were not used again"
}

# The thread that sees to connections while they are decided stays for those that follow. The last word of loadavg is
# the number of the newest thread.
try_threads() {
	echo "== short connections make few threads"
	eb redis-server --port 6499 --save "" --protected-mode no >/dev/null &
	serving 6499
	rounds few_threads
	kill $(pgrep -f "^redis-server .*:6499")
	wait
}
few_threads() {
	read -r _ _ _ _ before </proc/loadavg
	ea redis-benchmark -q -h 10.78.0.2 -p 6499 -t get -n 500 -c 1 -k 0 >redis.out 2>&1
	read -r _ _ _ _ after </proc/loadavg
	echo "500 connections: $((after - before)) threads"
	[ $((after - before)) -le 40 ]
}

# The port is another process's from one connection to the next: it gets the connections, as streams, though the first
# one lives on and the client has streams that rest there. That counts if it is done before the client forgets them.
try_moved() {
	for round in 1 2 3 4 5; do
		echo "== the listening socket moves to another process"
		for f in client x y; do : >$f.log; done
		server x 6402 x; x=$!; exec 5>x.in; serving 6402
		server y 6402 y waits; exec 6>y.in
		rm -f ask.in; mkfifo ask.in; : >ask.out
		EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" ask 10.78.0.2 6402 x 5 y 20 <ask.in >ask.out &
		asks=$!
		exec 7>ask.in
		until grep -q connections ask.out; do kill -0 $asks || fail "no answer of x"; done
		echo close >&5
		some x.out done $x || fail "x ended"
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
try_gives() { rounds gives; }
gives() {
	echo "== a stream that was taken is given up"
	: >x.log
	server x 6404 x; exec 5>x.in; serving 6404
	begins gives 6404
	begins_well && grep -q "tcp: the other side gave the stream up\|tcp: the other side uses it" x.log
}

# The connector takes the answer, and then calls nothing for as long as it likes: the server's writes do not wait for
# it, nor its reads beyond their time limit. Then it goes on, by the stream or over TCP.
try_speaks() {
	for then in mute turns; do
		rounds speaks $then
		log=": stream, on a connection that was there"
		[ $then = mute ] || log="tcp: the other side uses it"
		grep -q "$log" x.log || fail "the server does not know of it"
	done
}
speaks() { # mute or turns
	echo "== the other side is silent for a while: $1"
	: >x.log
	server x 6408 x banner; exec 5>x.in; serving 6408
	begins "$1" 6408
	if some begins.out taken $begins; then
		vain=$(grep -c "in vain" x.out || :)
		vain_again 20 || fail "its read hangs"
	fi
	echo go >&6
	begins_well
}
vain_again() { # N: two more within N times 0.1 s
	for i in $(seq "$1"); do
		[ "$(grep -c "in vain" x.out)" -lt $((vain + 2)) ] || return 0
		sleep 0.1
	done
	return 1
}

# The acceptor writes, closes, and calls nothing more, and the connector says nothing: TCP has it all before long.
try_left() { rounds left; }
left() {
	echo "== the other side is silent, and the program leaves"
	: >x.log
	server x 6410 x leaves; exec 5>x.in; serving 6410
	begins left 6410
	begins_well && grep -q "tcp: the other side did not go on with the stream" x.log
}

# The same, and the program ends.
try_exits() { rounds exits; }
exits() {
	echo "== the other side is silent, and the program ends"
	: >x.log
	server x 6414 x exits; exec 5>x.in; serving 6414
	begins left 6414
	begins_well && grep -q "tcp: the other side did not go on with the stream" x.log
}

# A stream that rests for too long is closed, though the threads of its program sleep and call nothing.
try_aged() { rounds aged; }
aged() {
	echo "== a stream rests until it is too old"
	: >x.log
	server x 6415 x pair; exec 5>x.in; serving 6415
	begins aged 6415
	begins_well
}

# Where others may accept at the port each connection gets a stream of its own.
try_several() {
	for how in several passes; do rounds several $how; done
}
several() { # HOW
	echo "== the port may be another's: $1"
	: >client.log; : >x.log
	server x 6416 x "$1"; exec 5>x.in; serving 6416
	ask 6416 x 30
	exec 5>&-; wait
	[ "$(again client)" = 0 ] || fail "$(again client) streams were used again"
	[ "$(streams client)" -gt 0 ]
}

# The connector used the stream and closed TCP in good order, and the acceptor's daemon ended before it had what was said
# on the stream: that is no end in good order.
try_lost() { rounds lost; }
lost() {
	echo "== the acceptor's daemon ends with what the other side said"
	: >x.log
	server x 6409 x polls; x=$!; exec 5>x.in; serving 6409
	begins lost 6409
	if some begins.out taken $begins; then
		a ip link set edge0 down
		echo go >&6
		some begins.out gone $begins || fail "lost: $(cat begins.out)"
		kill -KILL "$(cat b.pid)"
		some x.log "tcp: the other\|on a connection that was there" $x || :
		flock b.sock.lock true
		rm -f b.sock
		a ip link set edge0 up
		(launch b) # not a job of this shell, which waits for all of them
		met
		echo go >&6
	fi
	begins_well || return 1
	! grep -q "tcp: the other side gave" x.log || fail "the program is told of an end in good order"
	grep -q "on a connection that was there" x.log
}

# A stream is begun when the acceptor has settled for TCP: it says so.
try_late() { rounds late; }
late() {
	echo "== a stream is begun too late"
	: >x.log
	server x 6405 x polls; exec 5>x.in; serving 6405
	begins late 6405
	some x.log "tcp: not offered" $begins || :
	echo go >&6
	begins_well
}

# A peer that begins streams and makes no connections has at most as many as a server keeps.
try_only() {
	rounds only
}
only() {
	echo "== streams are begun without connections"
	server x 6406 x; exec 5>x.in; serving 6406
	begins only 6406 40
	some begins.out begun $begins || fail "only: $(cat begins.out)"
	b "$BIN/edgectl" -s b.sock -j conn >conns.json
	had=$(grep -o '"tcp/10[^"]*6406"' conns.json | sort -u | wc -l)
	echo "$(cat begins.out), $had are there"
	[ "$had" -le 32 ] || fail "a peer keeps $had streams"
	some_begun=$(sed -n 's/^begun //p' begins.out)
	ask 6406 x 20
	echo go >&6
	begins_well && [ "$some_begun" -ge 1 ]
}

# A stream is asked for at the owner of the port (PROTOCOL 20.12): it is accepted when the program uses the socket.
try_early() { rounds early early ""; rounds early early banner; rounds early flees ""; }
early() { # early or flees, HOW
	echo "== a stream is asked for at the owner${2:+ that has $2}: $1"
	: >x.log
	server x 6411 x $2; exec 5>x.in; serving 6411
	begins $1 6411 $2
	begins_well || return 1
	log=": stream$"
	[ $1 = early ] || log="tcp: the other side gave the stream up\|tcp: the other side uses it"
	grep -q "$log" x.log || fail "the server does not know of it"
}

# It is asked for when the acceptor uses TCP already, or of connections that do not exist.
try_crowd() { rounds dry; rounds crowd; }
dry() {
	echo "== a stream is asked for too late"
	: >x.log
	server x 6412 x polls; exec 5>x.in; serving 6412
	begins dry 6412
	some x.log "tcp: not offered" $begins || :
	echo go >&6
	begins_well
}
crowd() {
	echo "== many streams are asked for without connections"
	: >x.log
	server x 6413 x; exec 5>x.in; serving 6413
	begins crowd 6413 200
	some begins.out refused $begins || :
	ask 6413 x 20
	begins_well && [ "$(streams x)" -gt 0 ]
}

# A connection that follows at once takes the stream of the one before, which the server has not closed yet: of 10
# second connections some.
try_next() { rounds next; }
next() {
	echo "== a connection follows at once"
	: >client.log; : >x.log
	server x 6417 x; exec 5>x.in; serving 6417
	for i in 1 2 3 4 5 6 7 8 9 10; do
		EDGE_RUN_LOG=$LAB_DIR/client.log ea timeout 60 "$OUT/again" times 10.78.0.2 6417 x 2 >times.out ||
			fail "times: $(cat times.out)"
	done
	exec 5>&-; wait
	echo "$(again client) of 10"
	[ "$(again client)" -ge 3 ]
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
all="many threads next moved forks gives speaks left exits aged several lost late early crowd only off"
for name in ${*:-$all}; do "try_$name"; done
echo "again: ok"
