#!/bin/sh
# figures.sh [NUMBER...]: measures anew what README.md, docs/PERFORMANCE.md and docs/PROGRAMS.md say about speed, each
# figure by the command of its number there; without numbers those of README.md and docs/PERFORMANCE.md, in some 12
# minutes. Results go to $OUT (out/figures-readme): N.txt has what was printed, N.json every measurement. p1, p1u and p2
# are those of docs/PROGRAMS.md, as root, 3, 3 and 2 minutes; they install the programs that they run. Let the machine do
# nothing else: a warning in N.err says when it was busy. figures.sh tables and figures.sh goals measure
# nothing: they print what is in $OUT as a table, edge beside raw sockets, TCP and TLS, and as ratios beside the goals.
# figures.sh reach measures hosts beyond a router ($ROUNDS rounds, 5), as root, in some 4 minutes.
set -eu
cd "$(dirname "$0")/.."
OUT=${OUT:-out/figures-readme}
BENCH=${BENCH:-bin/edgebench}
mkdir -p "$OUT"

command_of() {
	plain="--security plaintext --checksum header"
	udp="--region 4m -D 0.4 --edge udp,udp-encrypted --only raw,tcp,tls"
	case $1 in
	1) echo compare one-way --lab -s 1m --region 4m -D 0.4 --edge plain,encrypted,udp,udp-encrypted \
		--only raw,tcp,iperf3,tls,ucx --tcp-cores pinned,free ;;
	2) echo compare one-way --lab -s 1m --region 256m -D 0.4 --warm-up 1.5 --edge udp,udp-encrypted --only raw,tcp,tls ;;
	3) echo compare two-way --lab -s 1m $udp ;;
	4) echo compare read --lab -s 1m --region 4m -D 0.4 --edge udp,udp-encrypted,write --only raw,tcp ;;
	5) echo compare one-way --lab -s 1m $udp --lab-mtu 1500 ;;
	6) echo compare two-way --lab -s 1m $udp --lab-mtu 1500 ;;
	7) echo compare one-way --lab -s 1m $udp --offloads off ;;
	8) echo compare ping-pong --lab -s 8 --region 4m -D 0.3 --edge plain,udp,udp-encrypted,embedded,udp-embedded \
		--only raw,tcp,tls,ucx,libfabric ;;
	9) echo compare ping-pong --lab -s 8 --region 4m -D 0.3 --poll block --edge plain,embedded --only tcp ;;
	10) echo compare ping-pong --lab -s 64k --region 4m -D 0.3 --edge plain,udp,udp-encrypted --only raw,tcp,tls ;;
	11) echo rate --lab -s 8 -D 0.5 $plain ;;
	11e) echo rate --lab -s 8 -D 0.5 $plain --embedded ;;
	12) echo links --lab -D 0.5 ;;
	13) echo schedulers --lab -s 1m -D 1 --rounds 1 ;;
	14) echo two-way --lab -s 1m -D 0.8 --format json ;;
	15) echo one-way --lab --conns 1,8,100,1000 -s 64k -D 0.5 ;;
	16) echo ping-pong --lab -s 8 -D 1 $plain --format json ;;
	16e) echo ping-pong --lab -s 8 -D 1 $plain --format json --embedded ;;
	18) echo compare one-way --lab -s 1m --region 4m -D 0.4 --edge udp-stream-encrypted --only raw,tcp ;;
	19) echo compare one-way --lab -s 1m --region 4m -D 0.4 --edge plain --only raw --lab-mtu 1500 ;;
	*) return 1 ;;
	esac
}

run() {
	began=$(date +%s)
	case $1 in
	p1 | p1u) # each host on cores of its own, and both on all
		pin=1
		[ "$1" = p1 ] || pin=0
		make -s -C edge/preload needs all >"$OUT/$1.log" 2>&1 && PIN=$pin edge/preload/test/lab.sh out/preload bin \
			edge/preload/test/measure.sh 3 >"$OUT/$1.txt" 2>"$OUT/$1.err" ;;
	p2) make -s -C edge/ofi measure >"$OUT/p2.txt" 2>"$OUT/p2.err" ;;
	*)
		line=$(command_of "$1") || { echo "figures.sh: no command has the number $1" >&2; exit 2; }
		echo "edgebench $line" >"$OUT/$1.txt"
		$BENCH $line -o "$OUT/$1.json" >>"$OUT/$1.txt" 2>"$OUT/$1.err"
		;;
	esac
	echo "$1: $(($(date +%s) - began)) s, $OUT/$1.txt"
	grep '^warning' "$OUT/$1.err" || true
}

# medians N NAME...: of these contenders in the comparison N, in Gbit/s or us, then processor time of each; "-" if there
# is none.
medians() {
	n=$1
	shift
	printf '%s\n' "$@" | awk -v file="$OUT/$n.txt" '
		BEGIN { while ((getline line < file) > 0) {
			name = substr(line, 3, 25); sub(/ +$/, "", name); split(substr(line, 29), f, " ")
			if (f[3] !~ /^(Gbit\/s|ns|us|ms)$/) continue
			value[name] = f[2] * (f[3] == "ns" ? 0.001 : f[3] == "ms" ? 1000 : 1)
			split(line, after, "CPU "); split(after[2], f, " "); cpu[name] = f[1]
		} }
		{ v = v (v ? " " : "") ($0 in value ? value[$0] : "-"); c = c " " ($0 in cpu ? cpu[$0] : "-") }
		END { print v c }'
}

# row TEXT N BETTER: a row of the table. BETTER is more or less; cpu takes processor time, of which less is better.
row() {
	medians "$2" "edge udp" "edge udp encrypted" "raw udp" "raw udp sealed" "tcp cubic" "tls go aes128gcm cubic" |
		awk -v text="$1" -v n="$2" -v better="$3" '
		function ratio(a, b) {
			if (a == "-" || b == "-" || b == 0) return "-"
			return sprintf("%s%.2f", (better == "more") == (a < b) ? "**worse:** " : "", a / b)
		}
		{ o = better == "cpu" ? 6 : 0; e = $(1 + o); x = $(2 + o); r = $(3 + o); s = $(4 + o); t = $(5 + o); l = $(6 + o)
			form = better == "cpu" ? "%.2f" : "%.1f"
			printf "| %s |", text
			for (i = 1; i <= 6; i++) printf " %s |", $(i + o) == "-" ? "-" : sprintf(form, $(i + o))
			printf " %s | %s | %s | %s | %s | %s |\n", ratio(e, r), ratio(x, s), ratio(e, t), ratio(x, t), ratio(x, l), n }'
}

tables() {
	echo "| | edge | encrypted | raw | raw sealed | TCP cubic | TLS over it | edge / raw | encrypted / sealed |" \
		"edge / TCP | encrypted / TCP | encrypted / TLS | command |"
	echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
	row "one-way 1 MiB, MTU 9000, Gbit/s" 1 more
	row "the same, cold" 2 more
	row "the same, no offloads" 7 more
	row "two-way, MTU 9000" 3 more
	row "read, MTU 9000 (TCP sends)" 4 more
	row "one-way, MTU 1500" 5 more
	row "two-way, MTU 1500" 6 more
	row "half a round trip, 8 bytes, us" 8 less
	row "half a round trip, 64 KiB, us" 10 less
	row "processor seconds for a GiB, one-way" 1 cpu
}

# goal TEXT LEAST|MOST X N A B LIMIT [cpu]: a row of the goals, A of B in the comparison N, or their processor time, and
# the same of LIMIT, which is what sockets alone have. X is the least or the most that the first should be.
goal() {
	medians "$4" "$5" "$6" "$7" | awk -v text="$1" -v bound="$2" -v x="$3" -v n="$4" -v cpu="${8:-}" '
		function ratio(a, b) { return a == "-" || b == "-" || b == 0 ? "-" : sprintf("%.2f", a / b) }
		{ o = cpu ? 3 : 0; v = ratio($(1 + o), $(2 + o)); limit = ratio($(3 + o), $(2 + o))
			if (v != "-" && (bound == "least" ? v + 0 >= x + 0 : v + 0 <= x + 0)) v = "**" v "**"
			printf "| %s | at %s %s | %s | %s | %s |\n", text, bound, x, v, limit, n }'
}

goals() {
	tcp="tcp cubic" seal="edge udp encrypted"
	echo "| ratio of medians | goal | edge | sockets alone | command |"
	echo "|---|---|---|---|---|"
	goal "one-way 1 MiB, MTU 9000, plaintext, of raw udp" least 0.9 1 "edge udp" "raw udp" "raw udp"
	goal "the same, of TCP" least 1.4 1 "edge udp" "$tcp" "raw udp"
	goal "encrypted, of raw udp sealed" least 0.85 1 "$seal" "raw udp sealed" "raw udp sealed"
	goal "the same, of TCP" least 1.15 1 "$seal" "$tcp" "raw udp sealed"
	goal "the same, of TLS over TCP" least 2.5 1 "$seal" "tls go aes128gcm cubic" "raw udp sealed"
	goal "two-way, plaintext, of TCP" least 1.2 3 "edge udp" "$tcp" "raw udp"
	goal "two-way, encrypted, of TCP" least 0.9 3 "$seal" "$tcp" "raw udp sealed"
	goal "one-way, MTU 1500, plaintext, of raw udp" least 0.85 5 "edge udp" "raw udp" "raw udp"
	goal "the same, of TCP" least 0.6 5 "edge udp" "$tcp" "raw udp"
	goal "read, plaintext, of raw udp" least 0.9 4 "edge udp" "raw udp" "raw udp"
	goal "half a round trip of 8 bytes, daemons, of TCP" most 0.8 8 "edge udp" "$tcp" "raw udp"
	goal "the same, embedded, frames alone, of raw ring" most 1.4 8 "edge embedded" "raw ring" "raw ring"
	goal "half a round trip of 64 KiB, daemons, of TCP" most 0.5 10 "edge udp" "$tcp" "raw udp"
	goal "streams, one-way, encrypted, of TCP" least 1 18 "edge udp stream encrypted" "$tcp" "raw udp sealed"
	goal "processor time for a GiB, plaintext, of TCP" most 0.8 1 "edge udp" "$tcp" "raw udp" cpu
	goal "the same, encrypted, of TCP" most 1.1 1 "$seal" "$tcp" "raw udp sealed" cpu
	goal "frames alone, MTU 9000, of raw ring" least 0.95 1 "edge" "raw ring" "raw ring"
	goal "frames alone, MTU 1500, of raw ring" least 0.95 19 "edge" "raw ring" "raw ring"
}

# middle: the median of the lines.
middle() { sort -g | awk '{ v[NR] = $1 } END { print NR ? (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 : "-" }'; }

# reach measures the goals of IP links, $ROUNDS times each, alternately: hosts beyond a router beside the same hosts on
# one Ethernet, encrypted; then what faults of routed networks cost.
reach() {
	fault=${FAULT:-bin/edgefault}
	rm -rf "$OUT"/reach-*
	for round in $(seq "${ROUNDS:-5}"); do
		for at in cable router; do
			router=$([ $at = cable ] || echo --lab-router)
			$BENCH one-way --lab $router -s 1m --region 4m -D 0.5 --report-gbits 2>>"$OUT/reach.err" |
				awk '$1 == 1048576 { print $4 }' >>"$OUT/reach-one-way-$at"
			$BENCH ping-pong --lab $router -s 8 --region 4m -D 0.3 2>>"$OUT/reach.err" |
				awk '$1 == 8 { print $5 }' >>"$OUT/reach-ping-pong-$at"
		done
		$fault --lab --short --only '^lanes|^rebinding|^mtu black' -o "$OUT/reach-$round" >>"$OUT/reach-faults.txt" \
			2>>"$OUT/reach.err" || echo "round $round: a scenario failed" >>"$OUT/reach.err"
	done
	for what in "one-way, Gbit/s" "ping-pong, us"; do
		cable=$(middle <"$OUT/reach-${what%%,*}-cable") router=$(middle <"$OUT/reach-${what%%,*}-router")
		echo "$what: beyond a router $router, on a cable $cable, ratio" \
			"$(awk -v a="$router" -v b="$cable" 'BEGIN { printf "%.2f", a / b }')"
	done
	for way in first second; do
		echo "black lane, slowest write to the $way host, ms:" \
			"$(grep -ho "slowest write, to the $way host ms [0-9.]*" "$OUT"/reach-*/faults.csv |
				awk '{ print $NF }' | middle)," \
			"before" "$(grep -ho "slowest write, clean, to the $way host ms [0-9.]*" "$OUT"/reach-*/faults.csv |
				awk '{ print $NF }' | middle)"
	done
	for scenario in rebinding 'mtu black hole'; do
		echo "$scenario, longest stall, ms:" "$(grep -h "$scenario" "$OUT"/reach-*/faults.csv |
			grep -o 'longest stall ms [0-9.]*' | awk '{ print $NF }' | middle)"
	done
}

[ "${1:-}" != reach ] || { reach | tee "$OUT/reach.txt"; exit 0; }
[ "${1:-}" != tables ] || { tables; exit 0; }
[ "${1:-}" != goals ] || { goals; exit 0; }
for n in ${*:-1 2 3 4 5 6 7 8 9 10 11 11e 12 13 14 15 16 16e 18 19}; do run "$n"; done
