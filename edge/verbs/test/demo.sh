#!/bin/sh
# In the lab: ib_write_bw of perftest, unchanged, between two hosts on this machine, and what it prints.
set -eu
. "$(dirname "$(realpath "$0")")/hosts.sh"
cd "$LAB_DIR"
pair 18515 ib_write_bw -F -x 0 -D 2 -s "${SIZE:-65536}"
cat client.out
A ibv_devinfo | head -n 8
