#!/bin/sh
# lab.sh OUT BIN COMMAND...: runs a command with two hosts laid out on this machine: namespaces a and b, with a link for
# edged (edge0) and one for TCP (ip0), and a daemon in each. OUT has what edge/preload/Makefile made, BIN edged and
# edgectl. hosts.sh has functions for the command. SECURITY=plaintext: without encryption. PIN=1: half of the processors
# for each host, as two machines have their own. TCP_CC=NAME: TCP's congestion control (cubic).
set -eu
OUT=$(realpath "$1"); BIN=$(realpath "$2"); shift 2
HERE=$(dirname "$(realpath "$0")")
if [ -z "${LAB:-}" ]; then # everything ends with this process: namespaces, links, daemons
	LAB=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$OUT" "$BIN" "$@"
fi
DIR=$(mktemp -d /tmp/edge-preload.XXXXXX)
# Programs that still run may write there meanwhile.
trap 'for i in 1 2 3 4 5; do ! rm -rf "$DIR" 2>/dev/null || break; done' EXIT
for h in a b; do
	unshare --net sleep infinity & eval "pid_$h=$!"
	until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
done
ip link set lo up
# MTU 9000 on both; no offload is changed.
for l in edge0 ip0; do
	ip link add $l netns "$pid_a" mtu 9000 type veth peer name $l netns "$pid_b" mtu 9000
done
n=1
for h in a b; do
	eval "pid=\$pid_$h"
	nsenter -n -t "$pid" sh -ec "sysctl -qw net.ipv6.conf.all.disable_ipv6=1; ip link set lo up; ip link set edge0 up; ip link set ip0 up
		ip addr add 10.78.0.$n/24 dev ip0"
	# By the route, since the kernel refuses to set net.ipv4.tcp_congestion_control of a namespace to what the machine's
	# net.ipv4.tcp_allowed_congestion_control does not list.
	nsenter -n -t "$pid" ip route replace 10.78.0.0/24 dev ip0 proto kernel scope link src "10.78.0.$n" \
		congctl "${TCP_CC:-cubic}" || {
		echo "this kernel has no TCP congestion control ${TCP_CC:-cubic}, only" \
			"$(cat /proc/sys/net/ipv4/tcp_available_congestion_control): set TCP_CC, or modprobe tcp_${TCP_CC:-cubic}"
		exit 1
	}
	n=$((n + 1))
done
half=$(($(nproc) / 2))
if [ "${PIN:-0}" = 1 ] && [ $half -gt 0 ]; then
	export PIN_A="taskset -c 0-$((half - 1))" PIN_B="taskset -c $half-$((2 * half - 1))"
fi
export TCP_CC="${TCP_CC:-cubic}" LAB_DIR="$DIR" LAB_A="$pid_a" LAB_B="$pid_b" OUT BIN HERE
echo "$("$BIN/edgectl" key new "$DIR/a.key") a" >"$DIR/b.peers"
echo "$("$BIN/edgectl" key new "$DIR/b.key") b" >"$DIR/a.peers"
chmod 600 "$DIR"/*.peers
. "$HERE/hosts.sh"
for h in a b; do launch $h; done
met
"$@"
