#!/bin/sh
# chaos.sh FOLDER RUNS: random programs, 20 in a run, on two to five ranks over the network of chaos.c, with logs that
# are overrun and others that are not.
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
		wait "$p" || { cat "$dir"/err.*; echo "FAIL: chaos: run $i of $n ranks, log of $log words"; exit 1; }
	done
	total=$((total + 20)) i=$((i + 1))
done
rm -f "$dir"/*
for r in 0 1; do
	CHAOS="$dir/world" CHAOS_SLOW=3000 EDGE_DSM="overrun,$r,2,here" timeout 60 \
		"$programs/overrun" 2>"$dir/err.$r" & eval "p$r=$!"
done
for p in $p0 $p1; do
	wait "$p" || { cat "$dir"/err.*; echo "FAIL: chaos: a log that is written over while it is read"; exit 1; }
done
echo "chaos: $total random programs"
