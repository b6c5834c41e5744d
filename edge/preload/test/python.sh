#!/bin/sh
# python.sh [SUITE...], in the lab: the suites of the distribution's Python over TCP, and under edge-run with a host that
# dials itself. Both mostly wait, so they run at once, each in a host of its own. What does not fail over TCP must not
# fail under edge-run, and connections must have become streams.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
python=/usr/bin/python3
# KEYS="-m PATTERN": some tests alone. Never: sockets of virtual machines, which hang over TCP, too.
KEYS=${KEYS:-}
fail() { echo "FAIL: $*"; exit 1; }
# suite FORM COMMAND...: into FORM.out what fails of the suite "name", one test a line, and into FORM.time the seconds
# that it takes.
suite() {
	form=$1 began=$(date +%s)
	shift
	"$@" timeout 550 $python -m test -v -u network -i "*VSOCK*" $KEYS "$name" >$form.whole 2>&1 || :
	sed -nE 's/^(FAIL|ERROR): ([^ ]+) \(([^)]*)\).*/\2 \3/p' $form.whole | sort -u >$form.out
	echo $(($(date +%s) - began)) >$form.time
}
over_edge() { EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=127.0.0.1=a EDGE_RUN_LOG=$LAB_DIR/run.log a "$OUT/edge-run" "$@"; }
for name in ${*:-test_socket test_ssl test_asyncio test_selectors test_socketserver}; do
	: >run.log
	suite tcp b & tcp=$!
	suite edge over_edge
	wait $tcp
	grep -E "^(Ran|== Tests result)" tcp.whole || fail "$name does not run"
	grep -E "^(Ran|== Tests result)" edge.whole || { tail -20 edge.whole; fail "$name does not end under edge-run"; }
	echo "$name: $(wc -l <tcp.out) fail over TCP in $(cat tcp.time) s, $(wc -l <edge.out) under edge-run in" \
		"$(cat edge.time) s; $(grep -c ": stream" run.log || :) ends of streams"
	[ "$name" = test_selectors ] || [ "$(grep -c ": stream" run.log)" -gt 5 ] || fail "$name: no streams"
	[ -z "${KEEP:-}" ] || cp edge.whole "$KEEP/$name.out"
	[ -z "$(comm -13 tcp.out edge.out)" ] || { comm -13 tcp.out edge.out; bad=1; }
done
[ -z "${bad:-}" ] || fail "these tests fail under edge-run alone"
echo "python: ok"
