#!/bin/sh
# measure.sh [ROUNDS [NAME...]], in the lab: programs over TCP, under edge-run and, those that speak TLS, over TLS in
# turns, each round in the other order. It prints the median of the ratio of the rates, with its verdict, and of the
# ratio of what a second of processor time of all programs and daemons did, which counts on a busy machine; then the
# rates of each round. Names: iperf, redis, connections, first, memcached, nginx, postgres; all, if none is given. TCP's
# congestion control (TCP_CC, see lab.sh) is looked up in a connection and stands in each row, as does whether each host
# has processors of its own (PIN=1) and whether edge encrypts (SECURITY).
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
chmod 755 .
rounds=${1:-5}
[ $# = 0 ] || shift
congestion
placed=$([ -n "${PIN_A:-}" ] && echo pinned || echo unpinned)
sealed=${SECURITY:-encrypted}
gbits() { awk '/receiver$/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /bits\/sec/) s = $i * ($(i + 1) ~ /^G/ ? 1000 : 1) } END { print s }'; }
bothways() { awk '/receiver$/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /bits\/sec/) s += $i } END { print s }'; }
rate() { tr '\r' '\n' | awk '/requests per/ { s = $2 } END { print s }'; }
wrks() { awk '/^Requests\/sec/ { s = $2 } END { print s }'; }
last() { tail -1; }
gets() { awk '/^Time to get/ { s = $4 / $(NF - 1) } END { print s }'; }
tps() { awk '/^tps/ { s = $3 } END { print s }'; }
# Processor time of all that runs in the lab, in ticks.
used() { cat /proc/[0-9]*/stat 2>/dev/null | awk '{ sub(/.*\) /, ""); s += $12 + $13 + $14 + $15 } END { print s }'; }
# cost HOW COMMAND...: a rate, and how many ticks passed for each millisecond
cost() {
	from=$(used) began=$(date +%s%3N)
	how=$1
	shift
	did=$($how $* 2>&1 | $filter)
	echo "$did $(($(used) - from)) $(($(date +%s%3N) - began))" | awk '{ print $1, $2 / $3 }'
}
tcp() { cost a $(echo "$*" | sed "s/@/$port/"); }
edge() { cost ea $(echo "$*" | sed "s/@/$((port + 100))/"); }
over_tls() { [ -z "$tls" ] || cost a $tls; }
# row NAME GOAL PLACE: the ratios of edge to another one, whose rate and ticks begin in that field of a round
row() {
	awk -v o="$3" '{ printf "%.2f %.2f\n", $3 / $o, $3 / $o * $(o + 1) / ($4 + ($4 == 0)) }' round.out >ratios
	for k in 1 2; do
		sort -n -k$k ratios | awk -v k=$k -v goal="$2" '{ r[NR] = $k }
			END {
				m = int((NR + 1) / 2)
				printf " %s (%s to %s)", r[m], r[1], r[NR]
				if (k == 1) printf ", %s; by processor time", (r[m] >= goal ? "reached" : "below " goal)
			}'
	done | awk -v n="$1" '{ printf "%-66s%s\n", n, $0 }'
}
# compare NAME FILTER PORT COMMAND...: of a command with @ for the port. tls is the command over TLS; empty: none. goal is
# of the rate over TCP.
tls= goal=1.0
compare() {
	name=$1 filter=$2 port=$3 i=0
	shift 3
	while [ $i -lt "$rounds" ]; do
		if [ $((i % 2)) = 0 ]; then
			t=$(tcp "$@") e=$(edge "$@") s=$(over_tls)
		else
			s=$(over_tls) e=$(edge "$@") t=$(tcp "$@")
		fi
		echo "$t $e $s"
		i=$((i + 1))
	done >round.out
	row "$name, $sealed, $placed, of TCP $TCP_CC" "$goal" 1
	[ -z "$tls" ] || row "$name, $sealed, $placed, of TLS over it" 1.5 5
	awk '{ print "   ", $1, $3, $5 }' round.out
	tls= goal=1.0
}
certificate() {
	openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=b -days 1 -keyout b.tls -out b.crt 2>/dev/null
}
measure_iperf() {
	b iperf3 -s -p 6000 >/dev/null 2>&1 &
	eb iperf3 -s -p 6100 >/dev/null 2>&1 &
	for p in 6000 6100; do listening $p; done
	compare "iperf3" gbits 6000 iperf3 -f m -c 10.78.0.2 -p @ -t 2
	compare "iperf3 -P 8" gbits 6000 iperf3 -f m -c 10.78.0.2 -p @ -t 2 -P 8
	compare "iperf3 --bidir" bothways 6000 iperf3 -f m -c 10.78.0.2 -p @ -t 2 --bidir
}
redis() { # NAME ARGUMENTS...
	of=$1
	shift
	tls="redis-benchmark -q --tls --insecure -h 10.78.0.2 -p 6201 $*"
	compare "redis-benchmark $of" rate 6001 redis-benchmark -q -h 10.78.0.2 -p @ "$@"
}
measure_redis() {
	certificate
	b redis-server --port 6001 --tls-port 6201 --tls-cert-file b.crt --tls-key-file b.tls --tls-auth-clients no \
		--save "" --protected-mode no >/dev/null &
	eb redis-server --port 6101 --save "" --protected-mode no >/dev/null &
	for p in 6001 6101 6201; do listening $p; done
	redis GET -t get -n 50000 -c 50
	redis SET -t set -n 50000 -c 50
	redis "GET -c 1" -t get -n 10000 -c 1
	redis "GET -P 16" -t get -n 400000 -c 50 -P 16
}
measure_connections() {
	b redis-server --port 6005 --save "" --protected-mode no >/dev/null &
	eb redis-server --port 6105 --save "" --protected-mode no >/dev/null &
	for p in 6005 6105; do listening $p; done
	goal=0.8
	compare "redis-benchmark GET -k 0, a connection each" rate 6005 redis-benchmark -q -h 10.78.0.2 -p @ -t get \
		-n 2000 -c 8 -k 0
}
# Of 20 processes each the median time from socket to the answer, in us, of the first connection and of the second.
measure_first() {
	rm -f ends; mkfifo ends; exec 8<>ends
	b "$OUT/again" serve 6006 x <ends >/dev/null &
	eb "$OUT/again" serve 6106 x <ends >/dev/null &
	for p in 6006 6106; do listening $p; done
	serving 6106
	i=0
	while [ $i -lt 20 ]; do
		a "$OUT/again" times 10.78.0.2 6006 x 2 | tr '\n' ' '
		ea "$OUT/again" times 10.78.0.2 6106 x 2 | tr '\n' ' '
		echo
		i=$((i + 1))
	done >round.out
	echo "connections, $sealed, $placed, in us: TCP first, second, edge first, second:" $(for k in 1 2 3 4; do
		sort -n -k$k round.out | awk -v k=$k '{ v[NR] = $k } END { print v[int((NR + 1) / 2)] }'
	done)
}
measure_memcached() {
	b memcached -u root -p 6002 -t 1 &
	eb memcached -u root -p 6102 -t 1 &
	for p in 6002 6102; do listening $p; done
	compare "memcached, memcslap get" gets 6002 memcslap --servers=10.78.0.2:@ --concurrency=8 \
		--execute-number=2000 --test=get
}
measure_nginx() {
	certificate
	head -c 512 /dev/zero >small
	head -c 268435456 /dev/zero >big
	for at in b:6003 eb:6103; do
		how=${at%%:*} port=${at#*:}
		mkdir -p "ng$port/logs"
		cat >"ng$port/nginx.conf" <<-T
			daemon on; user root; worker_processes 1; pid $LAB_DIR/ng$port/pid; error_log $LAB_DIR/nginx.log;
			events { worker_connections 512; }
			http { access_log off; sendfile on; keepalive_requests 1000000; server { listen $port; root $LAB_DIR;
				listen $((port + 200)) ssl; ssl_certificate $LAB_DIR/b.crt; ssl_certificate_key $LAB_DIR/b.tls; } }
		T
		$how nginx -p "ng$port" -c "$LAB_DIR/ng$port/nginx.conf"
		listening "$port"
	done
	tls="wrk -t 1 -c 16 -d 2 https://10.78.0.2:6203/small"
	compare "nginx 512 bytes, wrk" wrks 6003 wrk -t 1 -c 16 -d 2 http://10.78.0.2:@/small
	tls="curl -k -s -o /dev/null -w %{speed_download}\\n https://10.78.0.2:6203/big"
	compare "nginx 256 MiB, curl" last 6003 curl -s -o /dev/null -w %{speed_download}\\n http://10.78.0.2:@/big
}
measure_postgres() {
	pg=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	certificate
	mkdir pgdata
	chown postgres pgdata
	setpriv --reuid postgres --regid postgres --clear-groups "$pg/initdb" -D "$LAB_DIR/pgdata" -A trust >initdb.log
	echo "host all all 10.78.0.0/24 trust" >>pgdata/pg_hba.conf
	cp b.crt pgdata/server.crt
	install -o postgres -m 600 b.tls pgdata/server.key
	echo "ssl = on" >>pgdata/postgresql.conf
	cp -a pgdata pgdata2
	for at in b:6004:pgdata eb:6104:pgdata2; do
		how=${at%%:*} data=${at##*:} port=${at#*:}
		$how setpriv --reuid postgres --regid postgres --clear-groups "$pg/postgres" -D "$LAB_DIR/$data" \
			-p "${port%:*}" -h 10.78.0.2 -k "$LAB_DIR/$data" -c fsync=off >>postgres.log 2>&1 &
		listening "${port%:*}"
		a "$pg/pgbench" -h 10.78.0.2 -p "${port%:*}" -U postgres -q -i -s 1 postgres >pginit.log 2>&1
	done
	tls="env PGSSLMODE=require $pg/pgbench -h 10.78.0.2 -p 6004 -U postgres -S -c 4 -j 2 -T 2 postgres"
	compare "pgbench -S -c 4 -j 2" tps 6004 env PGSSLMODE=disable "$pg/pgbench" -h 10.78.0.2 -p @ -U postgres \
		-S -c 4 -j 2 -T 2 postgres
}
for name in ${*:-iperf redis connections first memcached nginx postgres}; do "measure_$name"; done
