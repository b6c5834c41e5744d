#!/bin/sh
# In the lab: programs over TCP and under edge-run in turns, ROUNDS times; prints both and the median of the ratios.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
rounds=${1:-5}
b iperf3 -s -p 6000 >/dev/null 2>&1 &
eb iperf3 -s -p 6100 >/dev/null 2>&1 &
b redis-server --port 6001 --save "" --protected-mode no >/dev/null &
eb redis-server --port 6101 --save "" --protected-mode no >/dev/null &
for p in 6000 6100 6001 6101; do listening $p; done
gbits() { awk '/receiver$/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /bits\/sec/) s = $i * ($(i + 1) ~ /^G/ ? 1000 : 1) } END { print s }'; }
rate() { tr '\r' '\n' | awk '/requests per/ { s = $2 } END { print s }'; }
# compare NAME FILTER PORT COMMAND...: of a command with @ for the port
compare() {
	name=$1 filter=$2 port=$3 i=0
	shift 3
	while [ $i -lt "$rounds" ]; do
		tcp=$(a $(echo "$*" | sed "s/@/$port/") 2>&1 | $filter)
		edge=$(ea $(echo "$*" | sed "s/@/$((port + 100))/") 2>&1 | $filter)
		echo "$tcp $edge" | awk '{ printf "%s %s %.2f\n", $1, $2, $2 / $1 }'
		i=$((i + 1))
	done | tee round.out | sort -n -k3 | awk -v n="$name" '{ t[NR] = $1; e[NR] = $2; r[NR] = $3 }
		END { m = int((NR + 1) / 2); printf "%-28s median ratio %s (%s to %s)\n", n, r[m], r[1], r[NR] }'
	sed 's/^/    /' round.out
}
compare "iperf3" gbits 6000 iperf3 -f m -c 10.78.0.2 -p @ -t 2
compare "iperf3 -P 8" gbits 6000 iperf3 -f m -c 10.78.0.2 -p @ -t 2 -P 8
compare "redis-benchmark GET" rate 6001 redis-benchmark -q -h 10.78.0.2 -p @ -t get -n 20000 -c 50
compare "redis-benchmark SET" rate 6001 redis-benchmark -q -h 10.78.0.2 -p @ -t set -n 20000 -c 50
compare "redis-benchmark GET -P 16" rate 6001 redis-benchmark -q -h 10.78.0.2 -p @ -t get -n 100000 -c 50 -P 16
