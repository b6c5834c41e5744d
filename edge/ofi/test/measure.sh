#!/bin/sh
# In the lab: MPI over TCP, over TCP with ranks that give way (mpi_yield_when_idle), and over the provider, in turns,
# ROUNDS times; the medians of the ratios. Then one-sided operations, in turns as well. With NETPIPE=1 also NetPIPE, once. TCP's congestion control (TCP_CC, see
# edge/preload/test/lab.sh) is looked up in a connection and stands in each row.
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"
rounds=${1:-7}
congestion
i=0
while [ $i -lt "$rounds" ]; do
	tcp=$(mpi 2 $OVER_TCP "$OUT/mpi" measure 500)
	edge=$(mpi 2 $OVER_EDGE "$OUT/mpi" measure 500)
	yield=$(mpi 2 $OVER_TCP --mca mpi_yield_when_idle 1 "$OUT/mpi" measure 500)
	echo "$edge $tcp $yield"
	i=$((i + 1))
done >round.out
ratio() { # NAME COLUMN UNIT: of TCP's and of yielding TCP's
	for other in 3 6; do
		awk -v c="$2" -v o="$other" '{ printf "%.3f %s %s\n", $c / $(c + o), $(c + o), $c }' round.out | sort -n |
			awk -v n="$1" -v u="$3" -v o="$other" -v cc="$TCP_CC" '{ r[NR] = $1; t[NR] = $2; e[NR] = $3 } END { m = int((NR + 1) / 2)
				printf "%-22s of %s: %s (%s to %s); there: %s and %s %s\n", n, (o == 3 ? "TCP " : "yielding TCP ") cc,
					r[m], r[1], r[NR], t[m], e[m], u }'
	done
}
ratio "latency of 8 bytes" 1 us
ratio "bandwidth of 1 MiB" 2 MB/s
ratio "allreduce of 8 bytes" 3 us
# Reads, writes and atomics of the engine's, and those that the owner's provider performs, which polls meanwhile.
one_sided() { # [STREAM=1]
	rm -f addr
	B env ${1:-} "$OUT/sided" measure-serve addr >server.out 2>&1 & pid=$!
	A env ${1:-} "$OUT/sided" measure addr >one.out || fail "measure, client"
	wait $pid || fail "measure, server"
	grep -v ": ok" one.out
}
i=0
while [ $i -lt "$rounds" ]; do
	one_sided >engine.$i
	one_sided STREAM=1 >stream.$i
	paste engine.$i stream.$i
	i=$((i + 1))
done >sided.out
echo "one-sided operation of bytes: by the engine, by the owner's program, ratio (smallest to largest): medians"
awk '{ k = $1 " " $2 " " $3; if (!(k in n)) order[++m] = k; i = ++n[k]; e[k, i] = $4; s[k, i] = $8; r[k, i] = $4 / $8 }
	function sorted(a, k, i, j, t) {
		for (i = 2; i <= n[k]; i++)
			for (j = i; j > 1 && a[k, j] < a[k, j - 1]; j--) { t = a[k, j]; a[k, j] = a[k, j - 1]; a[k, j - 1] = t }
	}
	END { for (x = 1; x <= m; x++) {
		k = order[x]; h = int((n[k] + 1) / 2)
		sorted(e, k); sorted(s, k); sorted(r, k)
		printf "%-22s %9s %9s   %.2f (%.2f to %.2f)\n", k, e[k, h], s[k, h], r[k, h], r[k, 1], r[k, n[k]]
	} }' sided.out
netpipe() { mpi 2 "$@" NPopenmpi -u 4194304 -p 0 -n 20 -o np.out >/dev/null 2>&1 && awk '{ print $1, $2 }' np.out; }
if [ "${NETPIPE:-0}" = 1 ]; then
	echo "NetPIPE: bytes, Mbit/s over TCP $TCP_CC, over edge"
	netpipe $OVER_TCP >np.tcp && netpipe $OVER_EDGE >np.edge && paste np.tcp np.edge | awk '{ print $1, $2, $4 }'
fi
