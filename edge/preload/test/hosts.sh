# To be sourced by what runs in the lab: a COMMAND and b COMMAND run it in host a or b over TCP; ea and eb under edge-run.
a() { ${PIN_A:-} nsenter -n -t "$LAB_A" "$@"; }
b() { ${PIN_B:-} nsenter -n -t "$LAB_B" "$@"; }
MAP="10.78.0.1=a,10.78.0.2=b"
ea() { EDGE_SOCKET=$LAB_DIR/a.sock EDGE_RUN_MAP=$MAP a "$OUT/edge-run" "$@"; }
eb() { EDGE_SOCKET=$LAB_DIR/b.sock EDGE_RUN_MAP=$MAP b "$OUT/edge-run" "$@"; }
# Bytes that came over TCP's link, in kB: of what a program did, little is left there when its connections are streams.
over_tcp() { a cat /proc/net/dev | awk '$1 == "ip0:" { printf "%d\n", ($2 + $10) / 1000 }'; }
fail() {
	echo "FAIL: $*"
	tail -n 20 ./*.log
	exit 1
}
# little NAME KB COMMAND...: the command succeeds, and TCP carried at most so many kB meanwhile.
little() {
	name=$1 most=$2 before=$(over_tcp)
	shift 2
	echo "== $name"
	"$@" || fail "$name: $*"
	carried=$(($(over_tcp) - before))
	[ $carried -le "$most" ] || fail "$name: $carried kB over TCP"
}
# The same, and the journal, run.log, says of more connections than before that they are streams.
streams() {
	had=$(became)
	little "$@"
	[ "$(became)" -gt "$had" ] || fail "$1: no connection became a stream"
}
became() { grep -c ": stream" run.log || :; }
# Fails unless TCP connections between the hosts have the congestion control that TCP_CC names: it looks at one.
congestion() {
	b iperf3 -s -1 -p 5999 >/dev/null 2>&1 &
	listening 5999
	had=$(a iperf3 -c 10.78.0.2 -p 5999 -t 1 -J | sed -n 's/.*"\(sender\|receiver\)_tcp_congestion":[^"]*"\(.*\)".*/\2/p' |
		sort -u | tr '\n' ' ')
	[ "$had" = "$TCP_CC " ] || { echo "TCP has the congestion control ${had:-of no connection}, not $TCP_CC"; return 1; }
	echo "TCP: congestion control $TCP_CC, offloads of ip0: $(offloads)"
}
# The offloads of TCP's link that are on.
offloads() {
	a ethtool -k ip0 | awk -F: '$1 ~ /^(tcp-segmentation|generic-segmentation|generic-receive)-offload$/ && $2 ~ /on/ {
		printf "%s ", $1 } END { print "" }'
}
# Waits until something listens in b, or in another host.
listening() { # port [host]
	i=0
	until ${2:-b} ss -ltn | grep -q ":$1 "; do
		sleep 0.05
		i=$((i + 1))
		[ $i -lt 400 ] || { echo "nothing listens at $1"; return 1; }
	done
}
# Waits until a program in b, or in another host, takes connections under edge-run: it offers its port when it first
# waits for them.
serving() { # port [host]
	listening "$@"
	offered "tcp/$1" "${2:-b}"
}
offered() { # service [host]
	i=0
	until b "$BIN/edgectl" -s "$LAB_DIR/${2:-b}.sock" -j client | grep -q "\"$1\""; do
		sleep 0.05
		i=$((i + 1))
		[ $i -lt 400 ] || { echo "nobody offers $1"; return 1; }
	done
}

# Starts the daemon of a host and waits until it is there.
launch() { # host
	eval "space=\$LAB_$(echo "$1" | tr ab AB)"
	{
		[ "${SECURITY:-encrypted}" = plaintext ] ||
			printf 'key_file = "%s"\npeers_file = "%s"\n' "$LAB_DIR/$1.key" "$LAB_DIR/$1.peers"
		cat <<-T
			name = "$1"
			socket = "$LAB_DIR/$1.sock"
			security = "${SECURITY:-encrypted}"
			[[link]]
			name = "edge0"
			[limits]
			requests = 65536
			${SERVICES:-}
			[metrics]
			listen = ""
			[log]
			level = "warn"
		T
	} >"$LAB_DIR/$1.toml"
	# On one processor the runtime needs a second P: the shard's thread must not keep the others from being scheduled.
	eval "pin=\${PIN_$(echo "$1" | tr ab AB):-}"
	GOMAXPROCS=$([ $($pin nproc) -gt 1 ] && $pin nproc || echo 2) $pin nsenter -n -t "$space" "$BIN/edged" \
		-c "$LAB_DIR/$1.toml" 2>>"$LAB_DIR/$1.log" &
	echo $! >"$LAB_DIR/$1.pid"
	i=0
	until [ -S "$LAB_DIR/$1.sock" ]; do
		sleep 0.05
		i=$((i + 1))
		[ $i -lt 400 ] || { cat "$LAB_DIR/$1.log"; exit 1; }
	done
	chmod 666 "$LAB_DIR/$1.sock"
}

# Waits until the daemons know each other.
met() {
	i=0
	until a "$BIN/edgectl" -s "$LAB_DIR/a.sock" ping -c 1 b >/dev/null 2>&1 && b "$BIN/edgectl" -s "$LAB_DIR/b.sock" ping -c 1 a >/dev/null 2>&1; do
		sleep 0.1
		i=$((i + 1))
		[ $i -lt 200 ] || { echo "the daemons do not meet"; return 1; }
	done
}
