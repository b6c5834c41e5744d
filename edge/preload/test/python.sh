#!/bin/sh
# python.sh [SUITE...], in the lab: the suites of the distribution's Python over TCP, and under edge-run with a host that
# dials itself. What does not fail over TCP must not fail under edge-run, and connections must have become streams.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
python=/usr/bin/python3
# KEYS="-m PATTERN": some tests alone. Never: sockets of virtual machines, which hang over TCP, too.
KEYS=${KEYS:-}
fail() { echo "FAIL: $*"; exit 1; }
suite() { # a suite's result, one test a line
	"$@" 2>&1 | tee whole.out | sed -nE 's/^(FAIL|ERROR): ([^ ]+) \(([^)]*)\).*/\2 \3/p' | sort -u
}
over_edge() { EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a EDGE_RUN_LOG=$LAB_DIR/run.log a "$OUT/edge-run" "$@"; }
for name in ${*:-test_socket test_ssl test_asyncio test_selectors test_socketserver}; do
	: >run.log
	began=$(date +%s)
	suite a timeout 550 $python -m test -v -u network -i "*VSOCK*" $KEYS "$name" >tcp.out || :
	grep -E "^(Ran|== Tests result)" whole.out || fail "$name does not run"
	middle=$(date +%s)
	suite over_edge timeout 550 $python -m test -v -u network -i "*VSOCK*" $KEYS "$name" >edge.out || :
	grep -E "^(Ran|== Tests result)" whole.out || { tail -20 whole.out; fail "$name does not end under edge-run"; }
	echo "$name: $(wc -l <tcp.out) fail over TCP in $((middle - began)) s, $(wc -l <edge.out) under edge-run in" \
		"$(($(date +%s) - middle)) s; $(grep -c ": stream" run.log || :) ends of streams"
	[ "$name" = test_selectors ] || [ "$(grep -c ": stream" run.log)" -gt 5 ] || fail "$name: no streams"
	[ -z "${KEEP:-}" ] || cp whole.out "$KEEP/$name.out"
	[ -z "$(comm -13 tcp.out edge.out)" ] || { comm -13 tcp.out edge.out; bad=1; }
done
[ -z "${bad:-}" ] || fail "these tests fail under edge-run alone"
echo "python: ok"
