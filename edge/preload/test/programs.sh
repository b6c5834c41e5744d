#!/bin/sh
# programs.sh [NAME...], in the lab: programs as they are, on both sides under edge-run. Each must do its work, and its bytes
# must not have passed over TCP's link; then one side alone is under edge-run, which must work over TCP. Without names: all.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
chmod 755 .
export EDGE_RUN_LOG="$LAB_DIR/run.log"
: >run.log
chmod 666 run.log
fail() {
	echo "FAIL: $*"
	tail -n 20 ./*.log
	exit 1
}
# streams NAME KB COMMAND...: the command succeeds, and TCP carried at most so many kB meanwhile.
streams() {
	name=$1 most=$2 before=$(over_tcp)
	shift 2
	echo "== $name"
	"$@" || fail "$name: $*"
	carried=$(($(over_tcp) - before))
	[ $carried -le "$most" ] || fail "$name: $carried kB over TCP"
}
as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
head -c 20000000 /dev/urandom >big
echo small >small

try_iperf() {
	iperf() { ea timeout 60 iperf3 -c 10.78.0.2 -p 6000 -t 1 "$@" | grep -E "receiver$" | tail -1; }
	start_iperf() {
		eb iperf3 -s -p 6000 >iperf3.log 2>&1 &
		serving 6000
	}
	start_iperf
	streams "iperf3" 200 iperf
	streams "iperf3 -P 8" 400 iperf -P 8
	streams "iperf3 --bidir" 400 iperf --bidir
	streams "iperf3 -R" 200 iperf -R
}

try_redis() {
	eb redis-server --port 6001 --save "" --protected-mode no --logfile "$LAB_DIR/redis.log" &
	serving 6001
	bench() { ea timeout 60 redis-benchmark -q -h 10.78.0.2 -p 6001 "$@" | tr '\r' '\n' | grep "requests per"; }
	cli() { ea timeout 20 redis-cli -h 10.78.0.2 -p 6001 "$@"; }
	streams "redis-benchmark" 200 bench -t set,get -n 5000 -c 50
	streams "redis-benchmark -P 16" 200 bench -t set,get -n 20000 -c 50 -P 16
	save() {
		cli set key value && cli bgsave && bench -t set,get -n 2000
		until cli info persistence | grep -q "rdb_bgsave_in_progress:0"; do :; done
		cli info persistence | grep -q "rdb_last_bgsave_status:ok" && test "$(cli get key)" = value
	}
	streams "redis with a background save" 400 save
}

try_memcached() {
	eb memcached -u root -p 6002 -t 4 &
	serving 6002
	streams "memcached, memccapable" 400 sh -c '. "$HERE/hosts.sh"; ea timeout 60 memccapable -h 10.78.0.2 -p 6002 | tail -1 | grep passed'
	streams "memcached, memcslap" 400 ea timeout 60 memcslap --servers=10.78.0.2:6002 --concurrency=8 --execute-number=300 --test=get
}

try_nginx() {
	mkdir -p ng/logs
	cat >ng/nginx.conf <<-T
		daemon on; user root; worker_processes 2; pid $LAB_DIR/ng/pid; error_log $LAB_DIR/nginx.log;
		events { worker_connections 512; }
		http { access_log off; sendfile on; keepalive_requests 100000; server { listen 6003; root $LAB_DIR; } }
	T
	eb nginx -p ng -c "$LAB_DIR/ng/nginx.conf"
	serving 6003
	url=http://10.78.0.2:6003
	curl_big() { "$@" timeout 60 curl -s $url/big | cmp - big; }
	streams "nginx, curl" 200 curl_big ea
}

try_load() {
	load() { ea timeout 60 ab -q "$@" $url/small >ab.out && grep -q "Failed requests: *0" ab.out && grep "per second" ab.out; }
	streams "nginx, ab -k" 400 load -k -n 2000 -c 16
	streams "nginx, ab" 800 load -n 300 -c 8
	streams "nginx, wrk" 400 sh -c '. "$HERE/hosts.sh"; ea timeout 60 wrk -t 2 -c 16 -d 1 http://10.78.0.2:6003/small | tee wrk.out | grep Requests/sec && ! grep "Socket errors" wrk.out'
}

# Its clients are on its own host, its server is nginx in b.
try_haproxy() {
	cat >haproxy.cfg <<-T
		defaults
			mode http
			timeout connect 5s
			timeout client 60s
			timeout server 60s
		listen web
			bind 10.78.0.1:6007
			server one 10.78.0.2:6003
	T
	ea haproxy -db -f haproxy.cfg >haproxy.log 2>&1 &
	listening 6007 a
	proxied() { a timeout 60 curl -s http://10.78.0.1:6007/big | cmp - big; }
	streams "haproxy, curl" 200 proxied
}

# Programs that cannot be preloaded, as all of Go.
try_forward() {
	forward() { # SERVICE PORT
		EDGE_SOCKET=$LAB_DIR/b.sock b "$BIN/edgectl" forward --serve "$1" "127.0.0.1:$2" >>forward.log 2>&1 &
		EDGE_SOCKET=$LAB_DIR/a.sock a "$BIN/edgectl" forward "127.0.0.1:$2" b "$1" >>forward.log 2>&1 &
		offered "$1"
		listening "$2" a
	}
	b etcd --data-dir etcd.d --listen-client-urls http://127.0.0.1:6008 --advertise-client-urls http://127.0.0.1:6008 \
		--listen-peer-urls http://127.0.0.1:6009 >etcd.log 2>&1 &
	listening 6008
	forward etcd 6008
	etcdctl() { ETCDCTL_API=3 a timeout 60 etcdctl --endpoints http://127.0.0.1:6008 "$@"; }
	etcd() { etcdctl put key value && [ "$(etcdctl get --print-value-only key)" = value ]; }
	streams "forwarders, etcd" 50 etcd
	b nats-server -a 127.0.0.1 -p 6010 >nats.log 2>&1 &
	listening 6010
	forward nats 6010
	streams "forwarders, nats-server" 50 a timeout 60 python3 "$HERE/nats.py" 6010
}

try_postgres() {
	pg=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	mkdir pgdata
	chown postgres pgdata
	as_postgres "$pg/initdb" -D "$LAB_DIR/pgdata" -A trust >initdb.log
	echo "host all all 10.78.0.0/24 trust" >>pgdata/pg_hba.conf
	eb setpriv --reuid postgres --regid postgres --clear-groups "$pg/postgres" -D "$LAB_DIR/pgdata" -p 6004 -h 10.78.0.2 \
		-k "$LAB_DIR/pgdata" -c fsync=off >postgres.log 2>&1 &
	serving 6004
	pgbench() { ea timeout 120 "$pg/pgbench" -h 10.78.0.2 -p 6004 -U postgres "$@" postgres 2>&1; }
	streams "postgres, pgbench -i" 400 pgbench -q -i -s 1
	tps() { pgbench -c 4 -j 2 -t 100 "$@" >tps.out && grep -q "failed transactions: 0" tps.out && grep "^tps" tps.out; }
	streams "postgres, pgbench" 400 tps
	streams "postgres, pgbench -C" 800 tps -C -S
}

try_ssh() {
	echo "== ssh, whose server hands its socket on and stays with TCP"
	for k in host user; do ssh-keygen -q -t ed25519 -N "" -f $k.key; done
	mkdir -p /run/sshd
	eb /usr/sbin/sshd -D -e -p 6005 -h "$LAB_DIR/host.key" -o AuthorizedKeysFile="$LAB_DIR/user.key.pub" -o StrictModes=no \
		-o UsePAM=no -f /dev/null 2>sshd.log &
	listening 6005
	ea timeout 60 ssh -i user.key -p 6005 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
		root@10.78.0.2 cat <big | cmp - big || fail ssh
}

try_alone() {
	echo "== one side alone"
	curl_big a || fail "a plain client of nginx under edge-run"
	a timeout 20 redis-cli -h 10.78.0.2 -p 6001 get key | grep -q value || fail "a plain client of redis under edge-run"
	b redis-server --port 6006 --save "" --protected-mode no --logfile "$LAB_DIR/redis2.log" &
	listening 6006
	ea timeout 20 redis-cli -h 10.78.0.2 -p 6006 set k v | grep -q OK || fail "a client under edge-run of a plain redis"
	grep -q "tcp: nobody of ours listens" run.log || fail "the journal does not say why"
}

for name in ${*:-iperf redis memcached nginx load haproxy postgres ssh alone forward}; do "try_$name"; done
[ ! -e ng/pid ] || kill "$(cat ng/pid)"
echo "programs: ok"
