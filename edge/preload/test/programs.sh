#!/bin/sh
# programs.sh [NAME...], in the lab: programs as they are, on both sides under edge-run. Each must do its work, and its
# bytes must not have passed over TCP's link; then one side alone is under edge-run, which must work over TCP. Without
# names: all.
set -eu
. "$HERE/hosts.sh"
cd "$LAB_DIR"
chmod 755 .
export EDGE_RUN_LOG="$LAB_DIR/run.log"
: >run.log
chmod 666 run.log
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
	curl_big() { "$1" timeout 60 curl -s "${2:-$url}/big" | cmp - big; } # HOW [URL]
	streams "nginx, curl" 200 curl_big ea
}

try_load() {
	load() { ea timeout 60 ab -q "$@" $url/small >ab.out && grep -q "Failed requests: *0" ab.out && grep "per second" ab.out; }
	streams "nginx, ab -k" 400 load -k -n 2000 -c 16
	streams "nginx, ab" 800 load -n 300 -c 8
	streams "nginx, wrk" 400 sh -c '. "$HERE/hosts.sh"; ea timeout 60 wrk -t 2 -c 16 -d 1 http://10.78.0.2:6003/small | tee wrk.out | grep Requests/sec && ! grep "Socket errors" wrk.out'
}

# In a, with clients in both hosts and nginx in b, whose health it checks.
try_haproxy() {
	cat >haproxy.cfg <<-T
		defaults
			mode http
			timeout connect 5s
			timeout client 60s
			timeout server 60s
		listen web
			bind 10.78.0.1:6007
			server one 10.78.0.2:6003 check inter 100ms
	T
	ea haproxy -db -f haproxy.cfg >haproxy.log 2>&1 &
	serving 6007 a
	proxy=http://10.78.0.1:6007
	streams "haproxy before nginx, curl in its host" 200 curl_big a $proxy
	streams "haproxy before nginx, curl in the other host" 400 curl_big eb $proxy
	proxied() {
		eb timeout 60 ab -q -n 300 -c 8 $proxy/small >ab.out && grep -q "Failed requests: *0" ab.out &&
			! grep -q DOWN haproxy.log
	}
	streams "haproxy before nginx, ab" 1600 proxied
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
	little "forwarders, etcd" 50 etcd
	b nats-server -a 127.0.0.1 -p 6010 >nats.log 2>&1 &
	listening 6010
	forward nats 6010
	EDGE_SOCKET=$LAB_DIR/a.sock little "forwarders and net.Conn, nats-server" 50 \
		a timeout 60 "$OUT/nats" b nats 127.0.0.1:6010
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

# Their servers hand sockets that they have used to other processes, and stay with TCP (EDGE_RUN_SKIP), as the clients do.
try_ssh() {
	for k in host user; do ssh-keygen -q -t ed25519 -N "" -f $k.key; done
	mkdir -p /run/sshd
	eb /usr/sbin/sshd -D -e -p 6005 -h "$LAB_DIR/host.key" -o AuthorizedKeysFile="$LAB_DIR/user.key.pub" \
		-o StrictModes=no -o UsePAM=no -o Subsystem="sftp internal-sftp" -f /dev/null 2>sshd.log &
	listening 6005
	by="-i $LAB_DIR/user.key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
	echo "== ssh, scp, sftp, rsync by ssh, over TCP"
	ea timeout 60 ssh $by -p 6005 root@10.78.0.2 cat <big | cmp - big || fail ssh
	ea timeout 60 scp -q $by -P 6005 big root@10.78.0.2:"$LAB_DIR/scp.got" || fail scp
	printf 'put big sftp.got\nget sftp.got sftp.back\n' |
		ea timeout 60 sftp -q $by -P 6005 -b - root@10.78.0.2:"$LAB_DIR" >sftp.log || fail sftp
	ea timeout 60 rsync -e "ssh $by -p 6005" big root@10.78.0.2:"$LAB_DIR/rsync.got" || fail "rsync by ssh"
	for got in scp.got sftp.got sftp.back rsync.got; do cmp $got big || fail $got; done
}

# It shares used sockets with its children: over TCP by default, and on streams of parent and child when nothing is left
# alone.
try_rsync() {
	mkdir -p tree
	for i in $(seq 200); do head -c $((i * 997)) big >tree/$i; done
	printf 'use chroot = no\nuid = root\n[lab]\npath = %s\nread only = no\n' "$LAB_DIR" >rsyncd.conf
	synced() { # PORT
		ea timeout 60 rsync -a tree big "rsync://10.78.0.2:$1/lab/up$1/" &&
			ea timeout 60 rsync -a "rsync://10.78.0.2:$1/lab/up$1/" "back$1/" &&
			diff -r tree "back$1/tree" && cmp big "back$1/big"
	}
	daemon() { # PORT
		eb rsync --daemon --no-detach --address=10.78.0.2 --port="$1" --config=rsyncd.conf --log-file=rsync.log &
	}
	daemon 6011
	listening 6011
	echo "== rsync and its daemon, over TCP"
	synced 6011 || fail "rsync over TCP"
	export EDGE_RUN_SKIP=none
	daemon 6014
	serving 6014
	streams "rsync and its daemon, on streams" 400 synced 6014
	unset EDGE_RUN_SKIP
}

# One session makes, reads and changes a node that it watches.
try_zookeeper() {
	printf 'tickTime=2000\ndataDir=%s/zk\nclientPort=6012\nclientPortAddress=10.78.0.2\nadmin.enableServer=false\n' \
		"$LAB_DIR" >zoo.cfg
	quick="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp /usr/share/java/zookeeper.jar"
	eb java $quick org.apache.zookeeper.server.ZooKeeperServerMain zoo.cfg >zookeeper.log 2>&1 &
	serving 6012
	zk() {
		printf 'create /edge one\nget -w /edge\nset /edge two\nget /edge\nquit\n' |
			ea timeout 60 java $quick org.apache.zookeeper.ZooKeeperMain -server 10.78.0.2:6012 >zk.out 2>&1
		grep -qx one zk.out && grep -qx two zk.out && grep -q "type:NodeDataChanged path:/edge" zk.out
	}
	streams "ZooKeeper, zkCli" 50 zk
}

# A server by Tokio that compiles for clients of its own host and keeps the results: the second client gets what it kept.
try_sccache() {
	echo 'int main(void) { return 7; }' >seven.c
	own() {
		SCCACHE_SERVER_PORT=6013 SCCACHE_DIR=$LAB_DIR/kept EDGE_SOCKET=$LAB_DIR/b.sock EDGE_RUN_MAP=127.0.0.1=b \
			b timeout 60 "$OUT/edge-run" "$@"
	}
	own env SCCACHE_START_SERVER=1 SCCACHE_NO_DAEMON=1 sccache >sccache.log 2>&1 &
	serving 6013
	compiles() {
		own sccache gcc -c seven.c -o one.o && own sccache gcc -c seven.c -o two.o && gcc -c seven.c -o three.o &&
			cmp one.o two.o && cmp one.o three.o && own sccache --show-stats >sccache.out &&
			grep -q "Cache hits  *1$" sccache.out
	}
	streams "sccache (Tokio)" 50 compiles
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

all="iperf redis memcached nginx load haproxy postgres ssh rsync zookeeper sccache alone forward"
for name in ${*:-$all}; do "try_$name"; done
[ ! -e ng/pid ] || kill "$(cat ng/pid)"
echo "programs: ok"
