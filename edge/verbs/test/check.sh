#!/bin/sh
# In the lab: the distribution's programs of RDMA, unchanged, between two hosts. check.sh all: every size and option.
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"
all=${1:-}

# Under the sanitizers.
SAN="env ASAN_OPTIONS=handle_segv=0" # adopt.c has a handler
SA() { EDGE_SOCKET=$LAB_DIR/a.sock a $SAN "$OUT/asan/edge-verbs" "$@"; }
SB() { EDGE_SOCKET=$LAB_DIR/b.sock b $SAN "$OUT/asan/edge-verbs" "$@"; }
# torture OPERATIONS: the checker's server in b, its client in a in the background.
torture() {
	B "$OUT/torture" serve 19000 >server.out 2>&1 & server=$!
	listening 19000 || fail "no server"
	begin=$(over_edge)
	A "$OUT/torture" run 10.78.0.2 19000 "$1" >client.out 2>&1 & client=$!
}
# fault FAULT CUT: in the middle of it; CUT queue pairs are lost.
fault() {
	torture 20000
	until [ $(($(over_edge) - begin)) -gt 5000 ]; do kill -0 $client 2>/dev/null || fail "$1 came too late"; done
	$1
	wait $client || fail "$1: client"
	grep -q "whole, cut $2" client.out || fail "$1: $(tail -n 1 client.out), want $2 lost"
	stop_server
	echo "$1: $(tail -n 1 client.out)"
}
stop_server() {
	kill -KILL "$server" 2>/dev/null || true
	for p in /proc/[0-9]*; do # only processes of the lab are seen here
		if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "^$OUT/torture serve "; then
			kill -KILL "${p#/proc/}"
		fi
	done
	while b ss -ltn | grep -q ":19000 "; do sleep 0.05; done # it is gone
}
no_fault() { :; }
cut_link() {
	a ip link set edge0 down
	sleep 1
	a ip link set edge0 up
}
kill_server() {
	stop_server
	B "$OUT/torture" serve 19000 >server.out 2>&1 & server=$!
}
restart() {
	kill -KILL "$(cat "$1.pid")"
	flock "$1.sock.lock" true # it unpins its memory first
	rm -f "$1.sock"
	launch "$1"
	met
}
restart_a() { restart a; }
restart_b() { restart b; }

A ibv_devinfo -v >devinfo.out 2>&1 || fail "ibv_devinfo"
grep -q "hca_id:	edge0" devinfo.out && grep -q "PORT_ACTIVE" devinfo.out || fail "ibv_devinfo lists no active device"
echo "ibv_devinfo: ok"

# They compare contents with -c.
pair 18515 ibv_rc_pingpong -g 0 -c
pair 18515 ibv_rc_pingpong -g 0 -c -e
pair 18515 ibv_rc_pingpong -g 0 -N
pair 18515 ibv_uc_pingpong -g 0 -c
pair 18515 ibv_srq_pingpong -g 0 -c
pair 18515 ibv_srq_pingpong -g 0 -c -e
pair 18515 ibv_ud_pingpong -g 0
pair 18515 ibv_ud_pingpong -g 0 -e
echo "pingpong: ok"

for test in ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat; do
	pair 18515 $test -F -x 0 -n 1000
	pair 18515 $test -F -x 0 -n 1000 -s 100000
done
pair 18515 ib_atomic_bw -F -x 0 -n 1000
pair 18515 ib_atomic_bw -F -x 0 -n 1000 -A CMP_AND_SWAP
pair 18515 ib_atomic_lat -F -x 0 -n 1000
pair 18515 ib_send_bw -F -x 0 -n 1000 -e
pair 18515 ib_send_lat -F -x 0 -n 1000 -e
pair 18515 ib_write_bw -F -x 0 -n 1000 -q 8
pair 18515 ib_write_bw -F -x 0 -n 1000 -b
pair 18515 ib_send_bw -F -x 0 -n 2000 -q 16 -r 512 # more receives than a device has operations
pair 18515 ib_send_bw -F -x 0 -n 1000 -r 128 --use-srq -q 4
for gid in 0 1; do # by identity, by IPv4 address
	pair 18515 ib_send_lat -F -x $gid -n 1000 -c UD
	pair 18515 ib_send_bw -F -x $gid -n 500 -c UD # no more than it has buffers for: it waits for each
done
pair 18515 ib_send_bw -F -x 0 -n 500 -c UD -s 2000 -e
pair 18515 ib_send_bw -F -x 0 -n 500 -c UD -q 4
echo "perftest: ok"

# Those of librdmacm.
cm() { # SERVER -- CLIENT
	serving=
	while [ "$1" != -- ]; do serving="$serving $1"; shift; done
	shift
	while services; do sleep 0.05; done # of the one before
	B timeout 60 $serving >server.out 2>&1 & server=$!
	offered "$server"
	A timeout 60 "$@" >client.out 2>&1 || fail "$*: client"
	wait $server || fail "$serving: server"
}
cm rping -s -a 10.78.0.2 -V -C 10 -- rping -c -a 10.78.0.2 -V -C 10
cm rping -s -a 10.78.0.2 -V -C 10 -S 60000 -- rping -c -a 10.78.0.2 -V -C 10 -S 60000
cm rdma_server -- rdma_client -s 10.78.0.2
cm rdma_xserver -- rdma_xclient -s 10.78.0.2
cm ucmatose -- ucmatose -s 10.78.0.2
cm udaddy -- udaddy -s 10.78.0.2
cm ib_write_bw -F -R -n 1000 -- ib_write_bw -F -R -n 1000 10.78.0.2
cm ib_send_lat -F -R -n 1000 -- ib_send_lat -F -R -n 1000 10.78.0.2
cm ib_send_lat -F -R -n 1000 -c UD -- ib_send_lat -F -R -n 1000 -c UD 10.78.0.2
echo "rdmacm: ok"

# rsockets. -T v compares contents; without another letter a call that finds nothing returns at once.
for how in "" "-T b" "-T n" "-T a"; do
	cm rstream $how -T v -S 100000 -I 20 -C 10 -- rstream -s 10.78.0.2 $how -T v -S 100000 -I 20 -C 10
done
cm rstream -T v -S 1000 -I 20 -C 100 -- rstream -s 10.78.0.2 -T v -S 1000 -I 20 -C 100
# Memory that is mapped for the peer; they poll its last byte.
for how in "" "-T b" "-T n" "-T a"; do
	cm riostream $how -T v -S 20000 -I 5 -C 10 -- riostream -s 10.78.0.2 $how -T v -S 20000 -I 5 -C 10
done
# Nobody listens.
A timeout 30 rstream -s 10.78.0.2 -p 7000 >client.out 2>&1 && fail "rstream to nobody"
grep -q "refused" client.out || fail "rstream to nobody: $(tail -n 1 client.out)"
echo "rsockets: ok"

# A queue pair in b that awaits a peer at a node is dialled from a: it takes the dial only if a is that node.
strange() { # IDENTITY WANT
	rm -f stranger.in stranger.out
	mkfifo stranger.in
	B timeout 60 "$OUT/stranger" await "$1" <stranger.in >stranger.out 2>&1 & server=$!
	exec 7>stranger.in
	until [ -s stranger.out ]; do kill -0 $server 2>/dev/null || fail "stranger await"; sleep 0.05; done
	said=$(A "$OUT/stranger" dial b "$(cat stranger.out)")
	exec 7>&-
	wait $server || fail "stranger await"
	[ "$said" = "$2" ] || fail "a queue pair that awaits $1: a is $said, want $2"
}
identity() { "$1" ibv_devinfo | awk '$1 == "node_guid:" { gsub(":", "", $2); print $2 }'; }
strange "$(identity A)" accepted
strange "$(identity B)" refused
echo "stranger: ok"

# A queue pair of datagrams takes what is meant for it from whom it really is, drops what it has no buffers for, and one
# node's processes have so many connections to it.
rm -f take.in call.in
mkfifo take.in call.in
: >take.out
: >call.out
SB timeout 60 "$OUT/asan/stranger" take "$(identity A)" <take.in >take.out 2>&1 & server=$!
exec 7>take.in
until [ -s take.out ]; do kill -0 $server 2>/dev/null || fail "stranger take"; sleep 0.05; done
# took WANT: of the datagrams since the last time
took() {
	lines=$(wc -l <take.out)
	printf . >&7
	until [ "$(wc -l <take.out)" -gt "$lines" ]; do kill -0 $server 2>/dev/null || fail "stranger take"; sleep 0.05; done
	[ "$(tail -n 1 take.out)" = "$1" ] || fail "$(tail -n 1 take.out) datagrams were taken, want $1"
}
flood() { A timeout 60 "$OUT/stranger" flood b "$(head -n 1 take.out)" "$(identity B)" "$1" >flood.out; }
flood odd || fail "odd datagrams"
took 2
flood many || fail "many datagrams"
took 4
A timeout 60 "$OUT/stranger" flood b "$(head -n 1 take.out)" "$(identity B)" call <call.in >call.out 2>&1 & callers=$!
exec 8>call.in
until [ -s call.out ]; do kill -0 $callers 2>/dev/null || fail "stranger call"; sleep 0.05; done
calls=$(b "$BIN/edgectl" -s "$LAB_DIR/b.sock" -j conn | grep -c '"service": "ib/')
[ "$calls" -le 128 ] || fail "one node has $calls connections for datagrams"
flood many || fail "many datagrams, among others' connections"
took 4
exec 8>&- 7>&-
wait $callers || fail "stranger call"
wait $server || fail "stranger take"
echo "datagrams of strangers: ok"

for test in fork memory itself deep events signals cancel gone polls naps; do
	A timeout 150 "$OUT/alone" $test || fail "alone $test"
done
A timeout 60 "$OUT/unload" || fail "unload"
# What the library cannot free, since the daemon may name it, leaks.
EDGE_SOCKET=$LAB_DIR/a.sock a env ASAN_OPTIONS=handle_segv=0:detect_leaks=0 timeout 60 "$OUT/asan/edge-verbs" \
	"$OUT/asan/alone" late || fail "alone late"
for test in fork close map share remap leave lie table both; do
	A timeout 150 "$OUT/sockets" $test 10.78.0.1 || fail "sockets $test"
done
fault no_fault 0
fault cut_link 0
fault kill_server 1
fault restart_a 1
fault restart_b 1
# Frames of two links overtake each other: the byte that is polled comes last all the same.
SERVICES='[[link]]
name = "ip0"'
restart a
restart b
cm riostream -T v -S 20000 -I 20 -C 10 -- riostream -s 10.78.0.2 -T v -S 20000 -I 20 -C 10
cm riostream -T v -S 60000 -I 20 -C 10 -- riostream -s 10.78.0.2 -T v -S 60000 -I 20 -C 10
SERVICES=
restart a
echo "two links: ok"
# A daemon without room for the pieces of all buffers.
SERVICES="ops_per_user = 8"
restart b
B timeout 90 "$OUT/short" serve 19002 >server.out 2>&1 & server=$!
listening 19002
A timeout 90 "$OUT/short" run 10.78.0.2 19002 >client.out 2>&1 || fail "short: client"
wait $server || fail "short: server"
echo "buffers beyond the daemon's room: ok"
# Nor for all work requests: they wait, in order.
SERVICES="ops_per_user = 8"
restart a
fault no_fault 0
# Those that wait end with their queue pair.
B timeout 90 "$OUT/short" meet 19003 >server.out 2>&1 & server=$!
listening 19003
A timeout 90 "$OUT/short" flush 10.78.0.2 19003 >client.out 2>&1 || fail "short flush: client"
wait $server || fail "short flush: server"
echo "work requests beyond the daemon's room: ok"
SERVICES=
restart a
restart b
SB "$OUT/asan/torture" serve 19001 >server.out 2>&1 & server=$!
listening 19001 || fail "no server under the sanitizers"
SA timeout 60 "$OUT/asan/torture" run 10.78.0.2 19001 3000 >client.out 2>&1 || fail "under the sanitizers"
kill -0 $server || fail "the server under the sanitizers"
echo "sanitizers: ok"

# ucx TLS OPTION...: ucx_perftest over those transports.
ucx() {
	tls=$1
	shift
	B env UCX_TLS="$tls" "$OUT/edge-verbs" --sysfs timeout 60 ucx_perftest -p 13337 >server.out 2>&1 & server=$!
	listening 13337
	A env UCX_TLS="$tls" "$OUT/edge-verbs" --sysfs timeout 60 ucx_perftest 10.78.0.2 -p 13337 -n 500 "$@" \
		>client.out 2>&1 || fail "ucx_perftest $* over $tls: client"
	wait $server || fail "ucx_perftest $* over $tls: server"
}
A --sysfs ucx_info -d >devinfo.out 2>&1 || fail "ucx_info"
grep -q "Transport: rc_verbs" devinfo.out && grep -q "Transport: ud_verbs" devinfo.out ||
	fail "ucx_info lists no RDMA NIC"
ucx rc_verbs,self -x rc_verbs -d edge0:1 -t put_lat
ucx ud_verbs,self -x ud_verbs -d edge0:1 -t am_lat
ucx rc_verbs,ud_verbs,self -t tag_bw -s 100000
echo "UCX: ok"
[ "$all" = all ] || exit 0

for test in ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat; do
	pair 18515 $test -F -x 0 -n 200 -a
done
echo "all sizes: ok"

for way in rc_verbs ud_verbs; do
	for test in am_lat am_bw; do ucx $way,self -x $way -d edge0:1 -t $test; done
	ucx $way,self -x $way -d edge0:1 -t am_bw -s 4000 -D zcopy
done
ucx rc_verbs,self -x rc_verbs -d edge0:1 -t put_bw
for tls in rc_verbs,ud_verbs,self ud_verbs,self; do
	for test in tag_lat tag_bw ucp_put_bw ucp_get stream_bw ucp_add; do ucx $tls -t $test; done
done
echo "all of UCX: ok"
