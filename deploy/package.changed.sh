#!/bin/sh
# After the files came or went: the daemon's user is made and systemd reads the unit again, where it runs. An image gets the user at its first boot.
[ -d /run/systemd/system ] || exit 0
[ ! -e /usr/lib/sysusers.d/edged.conf ] || systemd-sysusers edged.conf
systemctl daemon-reload
