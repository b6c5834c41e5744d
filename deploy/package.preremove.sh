#!/bin/sh
# The daemon ends when its package is removed (deb: remove, rpm: 0), and goes on over an upgrade until somebody restarts it: that ends connections.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ ! -d /run/systemd/system ] || systemctl disable --now edged || true
