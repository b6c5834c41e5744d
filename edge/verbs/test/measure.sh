#!/bin/sh
# In the lab: perftest and UCX under edge-verbs beside edgebench and TCP, in turns, ROUNDS times; the medians of the
# ratios, with the smallest and the largest; and how long queue pairs take to be linked, with few regions and many.
# PIN=1 gives each host processors of its own (make measure does).
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"
rounds=${1:-7}
EDGE_SOCKET=$LAB_DIR/b.sock b "$BIN/edgebench" server >edgebench.out 2>&1 &
bench=$!

# bench COMMAND TEST SIZE FIELD OPTION...: a figure of a test of edgebench's
bench() {
	command=$1 test=$2 size=$3 field=$4
	shift 4
	EDGE_SOCKET=$LAB_DIR/a.sock a "$BIN/edgebench" "$command" b -s "$size" --format jsonl "$@" 2>/dev/null |
		sed -n "/\"test\":\"$test\"/s/.*\"$field\":\([0-9.e+]*\).*/\1/p" | head -n 1
}
# perf COLUMN PROGRAM OPTION...: a column of perftest's last row
perf() {
	column=$1
	shift
	pair 18515 "$@"
	awk -v c="$column" '$1 ~ /^[0-9]+$/ { v = $c } END { print v }' client.out
}
mib() { awk -v v="$1" 'BEGIN { printf "%.0f", v * 1048576 }'; }
us() { awk -v v="$1" 'BEGIN { printf "%.0f", v * 1000 }'; }
# ucx TLS DEVICE STARTER: MB/s of messages of 1 MiB
ucx() {
	tls=$1 device=$2
	shift 2
	B env UCX_TLS="$tls" UCX_NET_DEVICES="$device" "$@" timeout 60 ucx_perftest -p 13337 >server.out 2>&1 & server=$!
	listening 13337
	A env UCX_TLS="$tls" UCX_NET_DEVICES="$device" "$@" timeout 60 ucx_perftest 10.78.0.2 -p 13337 -t tag_bw -s 1048576 \
		-n 1000 >client.out 2>&1 || fail "ucx_perftest over $tls: client"
	wait $server || fail "ucx_perftest over $tls: server"
	awk '/^Final:/ { print $7 }' client.out
}
# The kernel shows a namespace's interfaces in its own /sys, which UCX looks for.
cat >own-sys <<-'T'
	#!/bin/sh
	exec unshare -m sh -c 'mount -t sysfs sysfs /sys && exec "$@"' sh "$@"
T
chmod +x own-sys

# row NAME UNIT VERBS OTHER: a round's figures
row() { echo "$1|$2|$3|$4" >>rows.txt; }

i=0
while [ $i -lt "$rounds" ]; do
	for size in 65536 1048576; do
		verbs=$(perf 4 ib_write_bw -F -x 0 -D 1 -s $size)
		other=$(bench one-way one-way $size throughput_bytes_per_second --region $((2 * size)))
		row "ib_write_bw / edgebench one-way, $size bytes" bytes/s "$(mib "$verbs")" "$other"
	done
	verbs=$(perf 4 ib_read_bw -F -x 0 -D 1 -s 65536 -t 64)
	other=$(bench read read 65536 throughput_bytes_per_second --region 131072)
	row "ib_read_bw / edgebench read, 65536 bytes" bytes/s "$(mib "$verbs")" "$other"
	verbs=$(perf 5 ib_send_lat -F -x 0 -n 3000 -s 8)
	other=$(bench send send-latency 8 p50)
	row "ib_send_lat / edgebench send, 8 bytes" ns "$(us "$verbs")" "$other"
	verbs=$(perf 5 ib_write_lat -F -x 0 -n 3000 -s 8)
	other=$(bench ping-pong ping-pong 8 p50)
	row "ib_write_lat / edgebench ping-pong, 8 bytes" ns "$(us "$verbs")" "$other"
	verbs=$(ucx rc_verbs,ud_verbs,self edge0:1 "$OUT/edge-verbs" --sysfs)
	other=$(ucx tcp,self ip0 ./own-sys)
	row "UCX rc_verbs / UCX tcp ($TCP_CC), 1 MiB" MB/s "$verbs" "$other"
	row "UCX rc_verbs / ib_read_bw, 1 MiB" MB/s "$verbs" "$(perf 4 ib_read_bw -F -x 0 -D 1 -s 1048576)"
	i=$((i + 1))
done
kill $bench
A "$OUT/connect" "$rounds"
awk -F'|' '{ print $3 / $4 "|" $0 }' rows.txt | sort -t'|' -k2,2 -k1,1g | awk -F'|' '
	function show() { if (n > 0) printf "%-46s %.2f (%.2f to %.2f); %s and %s %s\n", name, r[int((n + 1) / 2)], r[1], r[n],
		v[int((n + 1) / 2)], o[int((n + 1) / 2)], unit }
	$2 != name { show(); n = 0; name = $2; unit = $3 }
	{ r[++n] = $1; v[n] = $4; o[n] = $5 }
	END { show() }'
