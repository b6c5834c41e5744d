# To be sourced by what runs in the lab of edge/preload/test: A COMMAND and B COMMAND run it in host a or b, with the
# provider; $ASAN/NAME is a test's program with the sanitizers in it and in the provider.
. "$HERE/hosts.sh"
TEST=${TEST:-$(dirname "$(realpath "$0")")}
export FI_PROVIDER_PATH="$OUT" EDGE_RUN_MAP="$MAP"
A() { EDGE_SOCKET=$LAB_DIR/a.sock a "$@"; }
B() { EDGE_SOCKET=$LAB_DIR/b.sock b "$@"; }
LIBASAN=$(${CC:-cc} -print-file-name=libasan.so)
ASAN="env FI_PROVIDER=edge FI_PROVIDER_PATH=$OUT/asan LD_PRELOAD=$LIBASAN $OUT/asan"
fail() { echo "FAIL: $*"; tail -n 30 "$LAB_DIR"/*.log "$LAB_DIR"/*.out 2>/dev/null; exit 1; }
# kB that the daemons' link has carried
over_edge() { a cat /proc/net/dev | awk '$1 == "edge0:" { printf "%d\n", ($2 + $10) / 1000 }'; }

# mpi N OPTION... PROGRAM...: with half of the processes in each host.
mpi() {
	n=$1
	shift
	A timeout 120 mpirun --allow-run-as-root --oversubscribe --mca plm_rsh_agent "$TEST/agent.sh" -x FI_PROVIDER_PATH \
		-x EDGE_RUN_MAP -H "10.78.0.1:$((n / 2)),10.78.0.2:$((n / 2))" -np "$n" "$@"
}
OVER_EDGE="--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include edge;ofi_rxm"
# Shared memory is left out: the lab's two hosts have one /dev/shm.
OVER_TCP="--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include ip0"
