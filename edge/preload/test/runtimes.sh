#!/bin/sh
# runtimes.sh [NAME...], in the lab: servers and clients in languages whose runtimes wait for sockets in ways of their
# own, both sides under edge-run. They compare every byte, and TCP's link must not carry them. Without names: all.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
export EDGE_RUN_LOG="$LAB_DIR/run.log"
: >run.log
head -c 1000000 /dev/urandom >big

try_java() {
	java="java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $OUT/java Net"
	eb $java serve 10.78.0.2 7301 2>java.log &
	serving 7301
	serving 7302
	streams "Java: selectors, threads, asynchronous channels, HTTP" 400 ea timeout 60 $java 10.78.0.2 7301 big
}

try_node() {
	eb node "$HERE/stream.js" serve 7303 2>node.log &
	serving 7303
	streams "Node: net" 400 ea timeout 60 node "$HERE/stream.js" 10.78.0.2 7303 big
}

try_python() {
	eb /usr/bin/python3 "$HERE/aio.py" serve 10.78.0.2 7304 2>python.log &
	serving 7304
	serving 7305
	streams "Python: asyncio with 100 clients, aiohttp" 1000 ea timeout 60 /usr/bin/python3 "$HERE/aio.py" 10.78.0.2 7304
}

try_erlang() {
	eb escript "$HERE/echo.erl" serve 10.78.0.2 7306 2>erlang.log &
	serving 7306
	streams "Erlang: gen_tcp" 200 ea timeout 60 escript "$HERE/echo.erl" 10.78.0.2 7306
}

try_tokio() {
	eb "$OUT/tokio/debug/echo" serve 10.78.0.2:7307 2>tokio.log &
	serving 7307
	streams "Tokio: threads that share one set" 200 ea timeout 60 "$OUT/tokio/debug/echo" 10.78.0.2:7307 3000000
	a timeout 60 "$OUT/tokio/debug/echo" 10.78.0.2:7307 300000 || fail "a plain client of Tokio under edge-run"
}

for name in ${*:-java node python erlang tokio}; do "try_$name"; done
echo "runtimes: ok"
