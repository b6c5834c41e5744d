#!/bin/sh
# lists.sh OBJECTS CORE: checks the lists that are kept by hand against the objects of the library and those of libedge
# in CORE. They say what the library has in place of the C library's.
set -eu
objects=$1 core=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
each() { while read -r name; do echo "lists: $name $1" >&2; bad=1; done; }

sed -n '/global:/,/local:/p' libedge-preload.map | sed '1d;$d' | tr -d ' \t' | tr ';' '\n' | sed '/^$/d' | sort >"$dir/map"
readelf -sW "$objects"/*.o | awk '$5 == "GLOBAL" && $6 == "DEFAULT" && $7 != "UND" { print $8 }' | grep -vx main | sort -u >"$dir/exported"
comm -23 "$dir/exported" "$dir/map" >"$dir/diff"
each "is EXPORTed and not in libedge-preload.map" <"$dir/diff"
comm -13 "$dir/exported" "$dir/map" >"$dir/diff"
each "is in libedge-preload.map and not EXPORTed" <"$dir/diff"

# What libedge calls must not come in here as if the program had called it, and what makes descriptors is own.c's.
nm -u "$core"/*.o | awk 'NF == 2 { print $2 }' | sort -u >"$dir/used"
cut -d' ' -f1 own.syms | sort >"$dir/ours"
printf '%s\n' accept accept4 dup epoll_create eventfd inotify_init1 memfd_create open openat pipe pipe2 signalfd socket \
	socketpair timerfd_create | sort - "$dir/map" | uniq >"$dir/watched"
# open, fcntl's F_DUPFD and dprintf are of calls that edge-run does not make (edge_grant, edge_register_memfd).
comm -12 "$dir/used" "$dir/watched" | comm -23 - "$dir/ours" | grep -vx open >"$dir/diff" || :
each "is called by libedge and not in own.syms" <"$dir/diff"
comm -13 "$dir/used" "$dir/ours" >"$dir/diff"
each "is in own.syms and not called by libedge" <"$dir/diff"
cut -d' ' -f2 own.syms | sort >"$dir/ours"
nm -g --defined-only "$objects"/*.o | awk 'NF == 3 { print $3 }' | sort -u | comm -13 - "$dir/ours" >"$dir/diff"
each "is in own.syms and not defined" <"$dir/diff"

# syscall() sends system calls to the functions of the same name, but for those that concern the whole process.
for name in $(cat "$dir/map"); do
	case $name in
	exec*|_exit|set*id|setgroups) [ "$name" = setsockopt ] || continue;;
	io_uring_setup|syscall|*64) continue;;
	esac
	grep -qw "__NR_$name" /usr/include/*/asm/unistd_64.h /usr/include/asm-generic/unistd.h 2>/dev/null || continue
	grep -q "case SYS_$name:" raw.c || echo "$name"
done >"$dir/diff"
each "has a system call of its name, which syscall() does not send to it" <"$dir/diff"
[ -s "$dir/exported" ] && [ -s "$dir/used" ] || { echo "lists: no objects" >&2; bad=1; }
[ $bad = 0 ] && echo "lists: ok"
