# To be sourced by what runs in the lab of edge/preload/test: A COMMAND and B COMMAND run it in host a or b, with our
# libibverbs and librdmacm.
. "$HERE/hosts.sh"
export EDGE_RUN_MAP="10.78.0.1=a,10.78.0.2=b"
A() { EDGE_SOCKET=$LAB_DIR/a.sock a "$OUT/edge-verbs" "$@"; }
B() { EDGE_SOCKET=$LAB_DIR/b.sock b "$OUT/edge-verbs" "$@"; }
fail() { echo "FAIL: $*"; tail -n 30 "$LAB_DIR"/*.log "$LAB_DIR"/*.out 2>/dev/null; exit 1; }
# kB that the daemons' link has carried
over_edge() { a cat /proc/net/dev | awk '$1 == "edge0:" { printf "%d\n", ($2 + $10) / 1000 }'; }

# pair PORT PROGRAM OPTION...: a server in b, and a client in a that is given b's address. After 60 s
# either is taken to hang; the other side of one that was ended sees its queue pairs fail.
pair() {
	port=$1
	shift
	B timeout 60 "$@" >server.out 2>&1 & server=$!
	listening "$port"
	A timeout 60 "$@" 10.78.0.2 >client.out 2>&1 || {
		client=$? ended=0
		wait $server || ended=$?
		fail "$*: client $client, server $ended (124: 60 s were over)"
	}
	wait $server || fail "$*: server $? (124: 60 s were over)"
}
# Whether a process offers a service of librdmacm.
services() { b "$BIN/edgectl" -s "$LAB_DIR/b.sock" -j client | grep -q '"rdma/'; }
# Waits until one does.
offered() {
	i=0
	until services; do
		kill -0 "$1" 2>/dev/null || fail "the server ended early"
		sleep 0.05
		i=$((i + 1))
		[ $i -lt 400 ] || fail "nobody offers rdma/PORT"
	done
}
