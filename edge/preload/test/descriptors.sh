#!/bin/sh
# In the lab: programs that use descriptors in their own ways. Sets by io_uring where that is to be had (Node), numbers
# of the program's choice (bash), another C library, and paths with a blank.
set -eu
export EDGE_RUN_LOG="$LAB_DIR/run.log"
. "$HERE/hosts.sh"
cd "$LAB_DIR"
: >run.log

echo "== descriptors, over TCP and over a daemon"
a timeout 60 "$OUT/fds" || fail "fds over TCP"
EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 60 "$OUT/edge-run" "$OUT/fds" || fail "fds"

echo "== streams of parent and child, over TCP and over a daemon"
a timeout 60 "$OUT/forks" || fail "forks over TCP"
EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 60 "$OUT/edge-run" "$OUT/forks" || fail "forks"

echo "== threads that wait for streams of their own, over TCP and over a daemon"
a timeout 60 "$OUT/words" || fail "words over TCP"
EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a a timeout 60 "$OUT/edge-run" "$OUT/words" || fail "words"

eb node "$HERE/node.js" serve 7201 &
serving 7201
begin=$(date +%s)
streams "Node: HTTP server and client" 200 ea timeout 60 node "$HERE/node.js" 10.78.0.2 7201
[ $(($(date +%s) - begin)) -lt 10 ] || fail "Node waits"
a timeout 60 node "$HERE/node.js" 10.78.0.2 7201 || fail "a plain client of Node under edge-run"

echo "== bash: connections by redirection, at each number"
eb redis-server --port 7203 --save "" --protected-mode no --logfile "$LAB_DIR/redis.log" &
serving 7203
for n in $(seq 3 20) 255 800; do
	ping="exec $n<>/dev/tcp/10.78.0.2/7203; printf 'PING\r\n' >&$n; read -r l <&$n; echo \${l%?}"
	answer=$(ea timeout 20 bash -c "$ping") || fail "bash at $n ends with $?"
	[ "$answer" = +PONG ] || fail "bash at $n: $answer"
done
# What is dup2ed onto standard output before its first byte is left to TCP.
[ "$(grep -c '^bash.*: tcp: standard' run.log)" -ge 20 ] || fail "bash was not under edge-run"

echo "== another C library, and a path with a blank"
echo 'int puts(const char *); int main(void) { return puts("runs") < 0; }' >other.c
musl-gcc -o other other.c
[ "$(ea sh -c ./other 2>&1)" = runs ] || fail "a program of musl"
mkdir "with blank"
cp "$OUT/edge-run" "$OUT/libedge-preload.so" "with blank"
! "with blank/edge-run" true 2>refused || fail "edge-run goes on without its library"
grep -q "takes no path with a blank" refused || fail "edge-run does not say why"
echo "descriptors: ok"
