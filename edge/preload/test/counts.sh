#!/bin/sh
# counts.sh [NAME...], in the lab: what bounds small requests. For each of the rows of measure.sh that have them, over
# TCP and under edge-run: context switches and system calls for a request, of the client, its daemon, the server's
# daemon and the server. Names: get, pipeline, connections, memcached, nginx, postgres; all, if none is given. It counts
# by perf.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
chmod 755 .
calls=raw_syscalls:sys_enter
events=context-switches,$calls
perf stat -e $calls true 2>/dev/null || { echo "perf cannot count system calls here"; exit 1; }
watch() { # FILE PID: counts in the background
	perf stat -x, -o "$1.stat" -e $events -p "$2" &
	watches="$watches $!"
}
field() { awk -F, -v e="$2" -v n="$made" '$3 ~ e { printf " %.2f", $1 / n }' "$1.stat"; }
# row NAME HOW PID COMMAND...: one line; PID is the server's. The command's output says how many requests it made, if $n
# does not.
row() {
	of=$1 how=$2 watches=
	watch b "$3"
	watch da "$(cat a.pid)"
	watch db "$(cat b.pid)"
	shift 3
	sleep 0.3 # perf tells nobody that it has begun
	$how perf stat -x, -o "$LAB_DIR/a.stat" -e $events -- "$@" >counts.out 2>&1 || { cat counts.out; return 1; }
	kill -INT $watches
	wait $watches || :
	made=$n
	[ "$made" -gt 0 ] || made=$(sed -n 's/^ *\([0-9]*\) requests in.*/\1/p
		s/^number of transactions actually processed: //p' counts.out)
	at="a da db b"
	[ "$how" = ea ] || at="a b"
	printf '%-22s %-9s' "$of" "$([ "$how" = ea ] && echo edge-run || echo TCP)"
	for e in context-switches $calls; do
		printf '%s' "$([ $e = $calls ] && echo ', calls' || echo 'switches')"
		for h in $at; do field $h $e; done
	done
	echo
}
both() { # NAME PORT PID EDGE_PID COMMAND with @ for the port
	of=$1 port=$2 pid=$3 edge_pid=$4
	shift 4
	row "$of" a "$pid" $(echo "$*" | sed "s/@/$port/")
	row "$of" ea "$edge_pid" $(echo "$*" | sed "s/@/$((port + 100))/")
}
# The process that has this in its command line, the latest of them.
server() { pgrep -n -f "$1"; }
redis() {
	! ss_has 6101 || return 0
	b redis-server --port 6001 --save "" --protected-mode no >/dev/null &
	eb redis-server --port 6101 --save "" --protected-mode no >/dev/null &
	for p in 6001 6101; do listening $p; done
	serving 6101
}
ss_has() { b ss -ltn | grep -q ":$1 "; }
of_redis() { # NAME N ARGUMENTS...
	redis
	title="redis GET $1" n=$2
	shift 2
	both "$title" 6001 $(server :6001) $(server :6101) redis-benchmark -q -h 10.78.0.2 -p @ -t get -n $n "$@"
}
count_get() { of_redis "-c 1" 10000 -c 1; }
count_pipeline() { of_redis "-P 16" 200000 -c 50 -P 16; }
count_connections() { of_redis "-k 0" 2000 -c 8 -k 0; }
count_memcached() {
	b memcached -u root -p 6002 -t 1 &
	eb memcached -u root -p 6102 -t 1 &
	for p in 6002 6102; do listening $p; done
	n=16000
	both "memcslap get" 6002 $(server "memcached.*6002") $(server "memcached.*6102") \
		memcslap --servers=10.78.0.2:@ --concurrency=8 --execute-number=2000 --test=get
}
count_nginx() {
	head -c 512 /dev/zero >small
	for at in b:6003 eb:6103; do
		how=${at%%:*} port=${at#*:}
		mkdir -p "ng$port/logs"
		cat >"ng$port/nginx.conf" <<-T
			daemon on; user root; worker_processes 1; pid $LAB_DIR/ng$port/pid; error_log $LAB_DIR/nginx.log;
			events { worker_connections 512; }
			http { access_log off; keepalive_requests 1000000; server { listen $port; root $LAB_DIR; } }
		T
		$how nginx -p "ng$port" -c "$LAB_DIR/ng$port/nginx.conf"
		listening "$port"
	done
	n=0
	both "nginx 512 bytes" 6003 $(pgrep -P "$(cat ng6003/pid)") $(pgrep -P "$(cat ng6103/pid)") \
		wrk -t 1 -c 16 -d 1 http://10.78.0.2:@/small
}
count_postgres() {
	pg=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	mkdir pgdata
	chown postgres pgdata
	setpriv --reuid postgres --regid postgres --clear-groups "$pg/initdb" -D "$LAB_DIR/pgdata" -A trust >initdb.log
	echo "host all all 10.78.0.0/24 trust" >>pgdata/pg_hba.conf
	cp -a pgdata pgdata2
	for at in b:6004:pgdata eb:6104:pgdata2; do
		how=${at%%:*} data=${at##*:} port=${at#*:}
		$how setpriv --reuid postgres --regid postgres --clear-groups "$pg/postgres" -D "$LAB_DIR/$data" \
			-p "${port%:*}" -h 10.78.0.2 -k "$LAB_DIR/$data" -c fsync=off >>postgres.log 2>&1 &
		listening "${port%:*}"
		a "$pg/pgbench" -h 10.78.0.2 -p "${port%:*}" -U postgres -q -i -s 1 postgres >pginit.log 2>&1
	done
	n=0
	both "pgbench -S -c 4 -j 2" 6004 $(head -1 pgdata/postmaster.pid) $(head -1 pgdata2/postmaster.pid) \
		env PGSSLMODE=disable "$pg/pgbench" -h 10.78.0.2 -p @ -U postgres -S -c 4 -j 2 -T 2 postgres
}
for name in ${*:-get pipeline connections memcached nginx postgres}; do "count_$name"; done
