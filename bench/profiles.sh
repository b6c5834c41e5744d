#!/bin/sh
# profiles.sh [ROW...]: where the processors' time goes in the rows of docs/PERFORMANCE.md that compare with TCP, as a
# table of shares of a core, first of the host that sends, then of the other one. It samples both cores 999 times a
# second for two seconds in the middle of each row's benchmark, as root, with perf (Debian: linux-perf), in some 10 s a
# row. Results go to $OUT (out/profiles): ROW.perf and what the benchmark printed. Without rows it takes all.
set -eu
cd "$(dirname "$0")/.."
OUT=${OUT:-out/profiles}
BENCH=${BENCH:-bin/edgebench}
mkdir -p "$OUT"
plain="--security plaintext --checksum header"

command_of() {
	big="--lab -s 1m --region 4m -D 4 --driver udp"
	small="--lab -s 8 --region 4m -D 4"
	case $1 in
	one-way) echo one-way $big $plain ;;
	one-way-encrypted) echo one-way $big ;;
	two-way) echo two-way $big $plain ;;
	two-way-encrypted) echo two-way $big ;;
	one-way-1500) echo one-way $big $plain --lab-mtu 1500 ;;
	read) echo read $big $plain ;;
	8-bytes) echo ping-pong $small --driver udp $plain ;;
	8-bytes-embedded) echo ping-pong $small --embedded $plain ;;
	64-KiB) echo ping-pong --lab -s 64k --region 4m -D 4 --driver udp $plain ;;
	alone) echo one-way --lab -s 1m --region 4m -D 4 $plain ;;
	alone-1500) echo one-way --lab -s 1m --region 4m -D 4 $plain --lab-mtu 1500 ;;
	stream-encrypted) echo compare one-way --lab -s 1m --region 4m -D 4 --rounds 1 --edge udp-stream-encrypted --only tcp ;;
	*) return 1 ;;
	esac
}

ALL="one-way one-way-encrypted two-way two-way-encrypted one-way-1500 read 8-bytes 8-bytes-embedded 64-KiB alone
	alone-1500 stream-encrypted"

# shares reads perf script's samples: a line that ends with [CORE], then the stack, the innermost function first.
shares='
function class() {
	if (task == "swapper") return "idle"
	if (stack ~ /aesgcm|fips140\/aes/) return "cipher"
	if (stack ~ /sys_sendmmsg|sys_sendto|sys_sendmsg/) return "sends"
	if (stack ~ /sys_recvmmsg|sys_recvfrom|sys_recvmsg/) return "receives"
	if (stack ~ /sys_sched_yield|sys_futex|sys_ppoll|sys_poll|sys_epoll|sys_nanosleep|sys_write|sys_read/)
		return "switches"
	if (stack !~ /multiedge/) return "rest"
	if (leaf ~ /memmove/ && stack ~ /internal\/(engine|shard)/) return "places"
	if (stack ~ /PollTransmit/) return "makes"
	if (stack ~ /engine\.\(\*Endpoint\)\.Handle[^T]/) return "takes"
	if (stack ~ /internal\/(shard|engine)|linkdrv/) return "daemon"
	return "client"
}
function sample() {
	if (stack == "" && task != "swapper") return
	n[core, class()]++
	all[core]++
}
/^[^ \t].*\[[0-9]+\] *$/ { sample(); task = $1; core = $NF; gsub(/[^0-9]/, "", core); core += 0; stack = leaf = ""; next }
NF >= 2 { stack = stack " " $2; if (leaf == "") leaf = $2 }
END {
	sample()
	k = split("sends receives cipher places makes takes daemon client switches rest idle", names, " ")
	for (core = 0; core < 2; core++) {
		printf "| %s | %s |", row, core ? "second" : "first"
		for (i = 1; i <= k; i++) {
			share = all[core] ? 100 * n[core, names[i]] / all[core] : 0
			printf share < 0.5 ? "  |" : " %.0f |", share
		}
		printf "\n"
	}
}'

profile() {
	line=$(command_of "$1") || { echo "profiles.sh: there is no row $1; the rows: $ALL" >&2; exit 2; }
	echo "edgebench $line" >"$OUT/$1.txt"
	$BENCH $line >>"$OUT/$1.txt" 2>&1 &
	pid=$!
	sleep 2.5 # the lab is made in one, and the benchmark goes on for four
	perf record -q -a -g -F 999 -e cpu-clock -o "$OUT/$1.perf" -- sleep 2
	wait "$pid"
	perf script -i "$OUT/$1.perf" -F comm,cpu,ip,sym 2>/dev/null | awk -v row="$1" "$shares"
}

echo "| % of a core | host | kernel: sends | receives | cipher | copies into place | makes frames | takes frames |" \
	"daemon, rest | client | yields, sleeps, wakes | rest | idle |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
[ $# -gt 0 ] || set -- $ALL
for row; do
	profile "$row"
done
