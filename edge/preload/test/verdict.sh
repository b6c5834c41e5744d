#!/bin/sh
# In the lab: when a connection becomes a stream, when it stays with TCP, and who may take it. verdict.sh [NAME...]
set -eu
export EDGE_RUN_LOG="$LAB_DIR/run.log"
. "$HERE/hosts.sh"
cd "$LAB_DIR"
chmod 711 .
fail() { echo "FAIL: $*"; tail -n 30 ./*.log; exit 1; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
as_thief() { EDGE_SOCKET=$LAB_DIR/b.sock b setpriv --reuid 65534 --regid 65534 --clear-groups "$OUT/thief" "$@"; }

# Another user of the server's host claims 200 connections in each way: of a server that accepts after the claim, and of
# one that waits in accept.
try_thief() {
	for way in ${WAYS:-late idle}; do
		echo "== a thief, and a server that is $way"
		port=$([ $way = late ] && echo 6301 || echo 6302)
		rm -f fifo; mkfifo fifo; chmod 666 fifo
		: >run.log; : >thief.log
		if [ $way = late ]; then fifo=$LAB_DIR/fifo; else fifo=; fi
		as_thief steal $port 100000 "${fifo:--}" >thief.log 2>&1 & thief=$!
		eb timeout 100 "$OUT/thief" serve $port 200 $fifo >server.log 2>&1 & server=$!
		serving $port
		until grep -q ready thief.log; do kill -0 $thief; done
		ea timeout 100 "$OUT/thief" connect 10.78.0.2 $port 200 >client.log || echo "the client got other answers than the server's"
		wait $server || echo "the server ended with $?"
		kill $thief 2>/dev/null || :
		wait $thief || :
		! grep -q TAKEN thief.log || fail "$(grep -c TAKEN thief.log) of 200 connections were taken"
		grep -q "^200 connections, 0 of" client.log || fail "$(cat client.log)"
		streams=$(grep -c "^thief.*>10.78.0.2:$port: stream" run.log)
		echo "$streams streams at both ends"
		[ "$streams" -ge 380 ] || fail "these connections were no streams"
	done
}

# On one host the kernel says whose the socket is: a thief that offers tcp/PORT and hears the nonces gets nothing.
try_owner() {
	echo "== a thief that offers the port of a server on the same host"
	: >thief.log # that of the test before says "ready"
	PEER=b as_thief own 6304 >thief.log 2>&1 & thief=$!
	until grep -q ready thief.log; do kill -0 $thief; done
	b timeout 100 "$OUT/thief" serve 6304 20 & server=$!
	listening 6304
	EDGE_SOCKET=$LAB_DIR/b.sock EDGE_RUN_MAP=10.78.0.2=b b "$OUT/edge-run" timeout 100 "$OUT/thief" connect 10.78.0.2 6304 20 ||
		echo "the client got other answers than the server's"
	kill $thief $server 2>/dev/null || :
	! grep -q TAKEN thief.log || fail "$(grep -c TAKEN thief.log) of 20 connections were taken"
	grep -q heard thief.log || fail "the thief heard nothing"
}

# tcp/PORT belongs to whom the configuration gives it.
try_reserve() {
	echo "== tcp/* reserved"
	[ "$(as_thief offer tcp/6303)" = "tcp/6303: offered" ] || fail "without a reservation anybody may offer"
	kill -KILL "$(cat b.pid)"
	flock b.sock.lock true
	rm -f b.sock
	SERVICES='[[service]]
name = "tcp/*"
user = "daemon"' launch b
	met
	! as_thief offer tcp/6303 >offer.out || fail "the thief offers tcp/6303"
	grep -q "may" offer.out || fail "want the reason: $(cat offer.out)"
	: >run.log; chmod 666 run.log
	eb setpriv --reuid daemon --regid daemon --clear-groups timeout 60 "$OUT/thief" serve 6303 5 >server.log 2>&1 & server=$!
	serving 6303
	ea timeout 60 "$OUT/thief" connect 10.78.0.2 6303 5
	wait $server
	[ "$(grep -c "6303: stream" run.log)" = 10 ] || fail "the user that has tcp/* got no streams"
}

CASE="timeout 60 /usr/bin/python3 $HERE/verdict.py"
# pair NAME PORT CLIENT: over TCP, and under edge-run with a server of that name.
pair() {
	b $CASE "serve_$1" $(($2 + 100)) & plain=$!
	eb $CASE "serve_$1" "$2" & server=$!
	listening $(($2 + 100))
	serving "$2"
	a $CASE "client_$3" $(($2 + 100)) </dev/null || fail "$3 over TCP"
	ea $CASE "client_$3" "$2" </dev/null || fail "$3"
	[ "$1" = busy ] || a $CASE "client_$3" "$2" </dev/null || fail "$3: a plain client of a server under edge-run"
	kill $plain $server
}

# Bytes or the end of TCP are a verdict; the first writes are taken, and arrive though the socket is closed at once; a
# connection is there when TCP's is.
try_first() {
	echo "== the first moments of a connection"
	pair raw 6310 raw
	pair first 6311 first
	mkfifo held
	pair busy 6312 busy
}

# TCP_FASTOPEN_CONNECT is TCP's; a listener of ours at another address of the port says nothing of a server that is not.
try_plain() {
	echo "== fast open, and another address"
	for h in a b; do $h sysctl -qw net.ipv4.tcp_fastopen=3; done
	pair echo 6313 fast
	eb $CASE serve_elsewhere 6315 & server=$!
	b $CASE serve_echo 6315 & plain=$!
	serving 6315
	until b ss -ltn | grep -q 10.78.0.2:6315; do :; done
	ea $CASE client_echo 6315 || fail "a listener at another address"
	kill $server $plain
}

# EDGE_RUN_REQUIRE: a server that is not under edge-run, and one whose daemon is gone.
try_require() {
	echo "== streams required"
	b $CASE serve_echo 6316 & plain=$!
	eb $CASE serve_echo 6317 & server=$!
	listening 6316
	serving 6317
	ea $CASE client_echo 6316 || fail "TCP without the setting"
	: >run.log
	EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=$MAP a "$OUT/edge-run" --require $CASE client_echo 6317 || fail "a stream"
	EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=$MAP a "$OUT/edge-run" --require $CASE client_refused 6316 2>err.out ||
		fail "$(cat err.out)"
	grep -q "EDGE_RUN_REQUIRE demands a stream" err.out || fail "it does not say why: $(cat err.out)"
	EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=$MAP a "$OUT/edge-run" --require $CASE client_evades 6316 2>err.out ||
		fail "$(cat err.out)"
	EDGE_SOCKET=$LAB_DIR/none EDGE_RUN_MAP=$MAP a "$OUT/edge-run" --require $CASE client_refused 6317 2>err.out ||
		fail "without a daemon: $(cat err.out)"
	kill $server
	EDGE_SOCKET=$LAB_DIR/b.sock EDGE_RUN_MAP=$MAP b "$OUT/edge-run" --require $CASE serve_echo 6318 2>/dev/null & server=$!
	serving 6318
	a $CASE client_refused 6318 2>err.out || fail "a client over TCP of a server that requires streams: $(cat err.out)"
	kill $plain $server
}

# A peer that offers connections and answers no dial costs the server no pinned memory.
try_silent() {
	echo "== a silent peer"
	eb redis-server --port 6320 --save "" --protected-mode no >/dev/null 2>&1 & server=$!
	serving 6320
	EDGE_SOCKET=$LAB_DIR/a.sock a "$OUT/thief" silent b 10.78.0.2 6320 40 >silent.log & client=$!
	until grep -q silent silent.log; do kill -0 $client; done
	b "$BIN/edgectl" -s b.sock -j client >clients.json
	pinned=$(sed -nE 's/.*"user_pinned_bytes": *([0-9]+).*/\1/p' clients.json | sort -n | tail -1)
	echo "${pinned:-0} bytes are pinned by a user"
	[ "${pinned:-0}" -lt 3000000 ] || fail "40 connections that nobody accepts pin $pinned bytes"
	kill $client $server
}

# The file of EDGE_RUN_LOG is a file of its owner's.
try_log() {
	echo "== the log"
	echo kept >target
	ln -s "$LAB_DIR/target" link.log
	for log in link.log new.log; do
		EDGE_RUN_LOG=$LAB_DIR/$log EDGE_RUN_MAP="" a "$OUT/edge-run" true
	done
	[ "$(cat target)" = kept ] || fail "the log went where a link leads"
	[ "$(stat -c %a new.log)" = 600 ] || fail "others may read the log"
}

# rsync's parent and child share a connection that was used before: it stays with TCP.
try_rsync() {
	echo "== rsync"
	mkdir files from
	head -c 3000000 /dev/urandom >from/big
	for i in 1 2 3 4 5; do echo $i >from/$i; done
	printf 'use chroot = no\nuid = 0\ngid = 0\n[files]\npath = %s/files\nread only = no\n' "$LAB_DIR" >rsyncd.conf
	eb rsync --daemon --no-detach --port 6319 --config rsyncd.conf >rsync.log 2>&1 & server=$!
	listening 6319
	ea timeout 60 rsync -a from/ rsync://10.78.0.2:6319/files/ || fail "rsync to a daemon"
	diff -r from files || fail "rsync changed files"
	ea timeout 60 rsync -a rsync://10.78.0.2:6319/files/ back/ || fail "rsync from a daemon"
	diff -r from back || fail "rsync changed files"
	kill $server
}

for name in ${*:-thief owner silent first plain require log rsync reserve}; do "try_$name"; done
echo "verdict: ok"
