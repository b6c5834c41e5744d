#!/bin/sh
# chaos.sh FOLDER RUNS: random programs, 20 in a run, on two to five ranks over the network of chaos.c, with logs that
# are overrun and others that are not; then programs that try one thing each.
set -eu
programs=$1 runs=$2 total=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
i=0
while [ $i -lt "$runs" ]; do
	n=$((2 + i % 4))
	case $((i % 3)) in 0) log=16 ;; 1) log=64 ;; *) log=0 ;; esac
	rm -f "$dir"/*
	r=0 pids=
	while [ $r -lt $n ]; do
		CHAOS="$dir/world" CHAOS_SEED=$i EDGE_DSM="chaos,$r,$n,here" timeout 60 \
			"$programs/chaos" $((1 + 20 * i)) 20 $log >"$dir/out.$r" 2>"$dir/err.$r" & pids="$pids $!"
		r=$((r + 1))
	done
	for p in $pids; do
		wait "$p" || { kill $pids 2>/dev/null; cat "$dir"/err.*; echo "FAIL: chaos: run $i of $n ranks, log of $log words"; exit 1; }
	done
	total=$((total + 20)) i=$((i + 1))
done
# alone PROGRAM RANKS WHAT: a program that tries one thing.
alone() {
	rm -f "$dir"/*
	r=0 pids=
	while [ $r -lt "$2" ]; do
		CHAOS="$dir/world" EDGE_DSM="$1,$r,$2,here" timeout 60 "$programs/$1" 2>"$dir/err.$r" & pids="$pids $!"
		r=$((r + 1))
	done
	for p in $pids; do
		wait "$p" || { kill $pids 2>/dev/null; cat "$dir"/err.*; echo "FAIL: chaos: $3"; exit 1; }
	done
}
(export CHAOS_SLOW=3000; alone overrun 2 'a log that is written over while it is read')
(export CHAOS_LATE=1; alone behind 3 'a change that is posted behind as many as may be in flight')
echo "chaos: $total random programs"
