#!/bin/sh
# In the lab: programs of RDMA that check.sh leaves out, unchanged, between two hosts.
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"

# OpenMPI over UCX, with half of the processes in each host; test/mpi.c of edge/ofi compares every byte.
cat >agent.sh <<-T
	#!/bin/sh
	shift
	exec nsenter -n -t $LAB_B env EDGE_SOCKET=$LAB_DIR/b.sock "$OUT/edge-verbs" --sysfs sh -c "\$*"
T
chmod +x agent.sh
for tls in rc_verbs,ud_verbs,self ud_verbs,self; do
	for n in 2 4; do
		begin=$(over_edge)
		A env UCX_TLS=$tls UCX_NET_DEVICES=edge0:1 "$OUT/edge-verbs" --sysfs timeout 120 mpirun --allow-run-as-root \
			--oversubscribe --mca plm_rsh_agent "$LAB_DIR/agent.sh" -x EDGE_RUN_MAP -x UCX_TLS -x UCX_NET_DEVICES \
			-H "10.78.0.1:$((n / 2)),10.78.0.2:$((n / 2))" -n $n --mca pml ucx --mca osc ucx \
			--mca btl ^openib,tcp,vader,ofi --mca oob_tcp_if_include ip0 "$OUT/mpi" check >mpi.out 2>&1 || fail "MPI over $tls"
		grep -q "^mpi: ok, $n" mpi.out || fail "MPI over $tls, $n processes"
		[ $(($(over_edge) - begin)) -gt 10000 ] || fail "MPI over $tls: its messages went elsewhere"
	done
done
echo "OpenMPI over UCX: ok"

# libfabric's verbs provider, by datagrams: fi_pingpong's server of connections gives its peer the address 127.0.0.1.
for provider in "verbs -e dgram" "verbs;ofi_rxd -e rdm"; do
	pair 47592 fi_pingpong -I 100 -p $provider
	grep -q "^1k .*=100" client.out || fail "fi_pingpong -p $provider"
done
echo "libfabric: ok"

for verb in write read send; do
	while services; do sleep 0.05; done
	B timeout 60 fio --name=s --ioengine=rdma --port=10000 --bs=64k --size=32m --rw=read --iodepth=16 \
		>server.out 2>&1 & server=$!
	offered "$server"
	A timeout 60 fio --name=c --ioengine=rdma --hostname=10.78.0.2 --port=10000 --verb=$verb --bs=64k --size=32m \
		--rw=write --iodepth=4 --iodepth_batch_complete=1 >client.out 2>&1 || fail "fio, $verb: client"
	wait $server || fail "fio, $verb: server"
	grep -q "io=32.0MiB" client.out || fail "fio, $verb"
done
echo "fio: ok"

# -cm 1: by librdmacm. Otherwise qperf addresses its peer by a LID, as no Ethernet device is.
B timeout 120 qperf >server.out 2>&1 & server=$!
listening 19765
for test in rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw \
	rc_compare_swap_mr rc_fetch_add_mr; do
	A timeout 30 qperf -cm 1 -t 1 10.78.0.2 $test >client.out 2>&1 || fail "qperf $test"
	grep -q "=" client.out || fail "qperf $test"
done
kill $server
echo "qperf: ok"

# rdma-core's own tests of pyverbs. These fail, each for a reason that docs/PROGRAMS.md has:
known=" test_atomic_invalid_qp_access test_resize_cq "
cp -r /usr/share/doc/rdma-core/tests . 2>/dev/null || fail "no tests of pyverbs: install python3-pyverbs anew"
gunzip tests/*.gz
ran=0
for module in device pd addr cq mr qp qpex cqex cq_events atomic relaxed_ordering fork; do
	A timeout 60 /usr/bin/python3 tests/run_tests.py --dev edge0 --gid 0 -v test_$module >pyverbs.out 2>&1 || true
	grep -q "^Ran " pyverbs.out || fail "pyverbs, $module"
	for failed in $(sed -n 's/^\(FAIL\|ERROR\): \([a-z_0-9]*\).*/\2/p' pyverbs.out); do
		case $known in *" $failed "*) ;; *) fail "pyverbs, $failed" ;; esac
	done
	ran=$((ran + $(awk '$1 == "Ran" { n = $2 } /^(OK|FAILED)/ { while (match($0, /=[0-9]+/)) { n -= substr($0, RSTART + 1,
		RLENGTH - 1); $0 = substr($0, RSTART + RLENGTH) } } END { print n + 0 }' pyverbs.out)))
done
[ $ran -ge 60 ] || fail "only $ran tests of pyverbs ran"
echo "pyverbs: ok, $ran tests"
