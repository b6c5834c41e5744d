#!/bin/sh
# Daemon and forwarder end when their package is removed (deb: remove, rpm: 0), and go on over an upgrade until somebody restarts them: that ends
# connections. The forwarder first: it would only look for the daemon.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ ! -d /run/systemd/system ] || systemctl disable --now edge-forward edged || true
