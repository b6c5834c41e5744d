#!/bin/sh
# In the lab: the provider by itself, under the sanitizers and under faults; fi_pingpong; MPI with contents compared.
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"

# pair WHAT SERVER CLIENT PROGRAM...: verbs or flood, between those hosts.
pair() {
	what=$1 server=$2 client=$3
	shift 3
	rm -f addr
	$server "$@" "$what-serve" addr >server.out 2>&1 & pid=$!
	$client "$@" "$what" addr >client.out 2>&1 || fail "$what, client, $server to $client"
	wait $pid || fail "$what, server, $server to $client"
}

# fault FAULT CUT PROGRAM N: in the middle of what PROGRAM does N of, so many connections are cut.
fault() {
	program=$3 many=$4
	rm -f addr
	begin=$(over_edge)
	B "$OUT/$program" flood-serve addr "$many" >server.out 2>&1 & server=$!
	A "$OUT/$program" flood addr "$many" >client.out 2>&1 & client=$!
	until [ $(($(over_edge) - begin)) -gt 5000 ]; do kill -0 $client 2>/dev/null || fail "$1 came too late"; done
	$1
	wait $client || fail "$1: client"
	wait $server || fail "$1: server"
	grep -q "whole, cut $2" client.out || fail "$1: want $2 connections cut"
	echo "$1, $program: $(head -n 1 client.out)"
}
cut_link() {
	a ip link set edge0 down
	sleep 1
	a ip link set edge0 up
}
kill_server() {
	kill -KILL "$server" 2>/dev/null
	for p in /proc/[0-9]*; do # only processes of the lab are seen here
		if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "^$OUT/$program flood-serve "; then
			kill -KILL "${p#/proc/}"
		fi
	done
	rm -f addr
	B "$OUT/$program" flood-serve addr "$many" >server.out 2>&1 & server=$!
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

# Peers that speak wrongly, under the sanitizers.
hostile() {
	rm -f addr addr.ready
	B $ASAN/hostile serve addr "$(a "$OUT/attack" count attack)" >server.out 2>&1 & server=$!
	A $ASAN/hostile good addr >good.out 2>&1 & good=$!
	until [ -e addr.ready ]; do kill -0 $server 2>/dev/null || fail "hostile serve"; sleep 0.05; done
	A "$OUT/attack" attack addr >client.out 2>&1 || fail "attack"
	wait $good || fail "hostile good"
	wait $server || fail "hostile serve"
	rm -f addr
	B "$OUT/attack" listen addr >server.out 2>&1 & server=$!
	A $ASAN/hostile dial addr "$(a "$OUT/attack" count listen)" >client.out 2>&1 || fail "hostile dial"
	wait $server || fail "attack listen"
}

# An MPI job whose daemon goes away ends, and says why.
lost_mpi() {
	begin=$(over_edge)
	(mpi 2 $OVER_EDGE "$OUT/mpi" forever >mpi.out 2>&1) & job=$!
	until [ $(($(over_edge) - begin)) -gt 5000 ]; do kill -0 $job 2>/dev/null || fail "the MPI job ended early"; done
	restart "$1"
	status=0
	wait $job || status=$?
	[ $status -ne 0 ] && [ $status -ne 124 ] || fail "MPI, restart of $1: the job ended with $status"
	grep -q "libedge-fi: a connection is lost" mpi.out || fail "MPI, restart of $1"
}

A fi_info -p edge | grep -q "FI_EP_MSG" || fail "fi_info does not list it"
A fi_info -p "edge;ofi_rxm" | grep -q "FI_EP_RDM" || fail "fi_info does not list it under ofi_rxm"
for wait in "" "FI_WAIT=1"; do
	for what in verbs flood; do
		pair $what B A env $wait $ASAN/pair
		pair $what A A env $wait $ASAN/pair
	done
done
for wait in "" "FI_WAIT=1"; do
	pair more B A env $wait $ASAN/more
	pair more A A env $wait $ASAN/more
done
for wait in "" "FI_WAIT=1"; do
	rm -f addr.fifo && mkfifo addr.fifo
	pair sided B A env $wait $ASAN/sided
done
echo "pair: ok"
hostile
echo "hostile: ok"
for flood in "pair 60000" "sided 5000"; do
	fault cut_link 0 $flood
	fault kill_server 1 $flood
	fault restart_a 1 $flood
	fault restart_b 1 $flood
done

pingpong() { # ENDPOINT PROVIDER
	B timeout 60 fi_pingpong -e "$1" -p "$2" -c -I 5 -S all >server.out 2>&1 & pid=$!
	listening 47592
	A timeout 60 fi_pingpong -e "$1" -p "$2" -c -I 5 -S all 10.78.0.2 >client.out 2>&1 || fail "fi_pingpong -e $1 -p $2"
	wait $pid || fail "fi_pingpong -e $1 -p $2: server"
	echo "fi_pingpong -e $1 -p $2: ok"
}
pingpong msg edge
pingpong rdm "edge;ofi_rxm"

# check_mpi N OPTION...
check_mpi() {
	n=$1 begin=$(over_edge) tcp=$(over_tcp)
	shift
	mpi "$n" $OVER_EDGE "$@" "$OUT/mpi" check >mpi.out 2>&1 || fail "MPI, $n processes, $*"
	grep "^mpi: ok, $n" mpi.out || fail "MPI, $n processes, $*"
	[ $(($(over_edge) - begin)) -gt 10000 ] && [ $(($(over_tcp) - tcp)) -lt 1000 ] || fail "MPI went over TCP"
}
for n in ${PROCESSES:-2 4 8}; do check_mpi "$n"; done
check_mpi 4 -x FI_EDGE_BUFFER=4096              # everything waits for room
check_mpi 2 -x FI_OFI_RXM_DATA_AUTO_PROGRESS=1 # two threads
check_mpi 4 -x FI_OFI_RXM_USE_SRX=1            # shared receive contexts
mpi 4 $OVER_EDGE --mca osc pt2pt "$OUT/mpi" windows >mpi.out 2>&1 || fail "MPI windows"
grep "^mpi windows: ok, 4" mpi.out || fail "MPI windows"
for h in a b; do lost_mpi $h; done
echo "MPI, restart of a daemon: the job ends"
