#!/bin/sh
# layers.sh OBJECTS: in a folder with a file "layers", which names the layers of its sources and headers from below.
# Fails if a file is in no layer or in two, if one includes a header of a layer above its own, or if its object in OBJECTS
# uses a symbol that an object of a layer above defines. What layers above are told goes through pointers to functions.
set -eu
objects=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
grep -v '^#' layers | awk '{ for (i = 2; i <= NF; i++) print NR, $i, substr($1, 1, length($1) - 1) }' >"$dir/files"
bad=0
complain() { echo "layers: $*" >&2; bad=1; }

ls ./*.c ./*.h | sed 's,.*/,,' | sort >"$dir/there"
cut -d' ' -f2 "$dir/files" | sort >"$dir/all"; sort -u "$dir/all" >"$dir/named"
for f in $(uniq -d "$dir/all"); do complain "$f is in two layers"; done
for f in $(comm -23 "$dir/there" "$dir/named"); do complain "$f is in no layer"; done
for f in $(comm -13 "$dir/there" "$dir/named"); do complain "$f is not there"; done

while read -r n f layer; do
	for h in $(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$f"); do
		awk -v n="$n" -v h="$h" '$2 == h && $1 > n { print $3 }' "$dir/files" >"$dir/above"
		[ ! -s "$dir/above" ] || complain "$f of $layer includes $h of $(cat "$dir/above")"
	done
	case $f in *.h) continue;; esac
	nm -g --defined-only "$objects/${f%.c}.o" | awk -v n="$n" -v f="$f" -v l="$layer" '{ print $3, n, f, l }' >>"$dir/defined"
	nm -u "$objects/${f%.c}.o" | awk -v n="$n" -v f="$f" -v l="$layer" '{ print $2, n, f, l }' >>"$dir/used"
done <"$dir/files"
awk 'NR == FNR { layer[$1] = $2; file[$1] = $3; name[$1] = $4; next }
	($1 in layer) && layer[$1] > $2 { print "layers: " $3 " of " $4 " uses " $1 " of " file[$1] ", " name[$1]; bad = 1 }
	END { exit bad }' "$dir/defined" "$dir/used" >&2 || bad=1
[ "$(wc -l <"$dir/used")" -gt 0 ] || complain "$objects has no objects"
[ $bad = 0 ] && echo "layers: $(grep -vc '^#' layers), none uses one above it"
