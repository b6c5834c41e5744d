#!/bin/sh
# versions.sh LIBRARY OBJECT PREFIX: what a program that was linked to LIBRARY needs of ours. PREFIX.map gives each
# symbol the version that it has there, since the loader refuses programs whose versions are missing. PREFIX.c has a
# stub for each function that OBJECT does not define. A stub logs its name and fails with EOPNOTSUPP, as functions of
# its sort do: NULL or -1 with errno, or the number itself. Those that prepare memory for fork succeed.
set -eu
export LC_ALL=C
library=$1 object=$2 out=$3
# "VERSION NAME" of each defined symbol; of several versions the default one, which has no parentheses.
objdump -T "$library" | awk 'NF > 2 && $0 !~ /\*UND\*|\*ABS\*/ && $(NF-1) ~ /(IBVERBS|RDMACM)_/ {
	v = $(NF-1); n = $NF; given = v ~ /\(/; gsub(/[()]/, "", v)
	if (!given || !(n in version)) version[n] = v
} END { for (n in version) print version[n], n }' | sort -V >"$out.names"
nm --defined-only "$object" | awk '$2 == "T" { print $3 }' | sort >"$out.ours"
{
	before=
	for v in $(cut -d' ' -f1 "$out.names" | uniq); do
		echo "$v {"; echo "	global:"
		awk -v v="$v" '$1 == v { print "\t\t" $2 ";" }' "$out.names"
		[ -n "$before" ] || echo "	local: *;"
		echo "} $before;"
		before=$v
	done
	echo "EDGE_VERBS { global: edge_verbs_*; };"
} >"$out.map"
{
	echo '#include <errno.h>'
	echo 'void edge_verbs_missing(const char *name);'
	cut -d' ' -f2 "$out.names" | sort | comm -23 - "$out.ours" | while read -r name; do
		case $name in
		ibv_dontfork_range|ibv_dofork_range|ibv_query_qp_data_in_order) value=0 ;;
		ibv_create_ah*|ibv_import_*|ibv_reg_dmabuf_mr|verbs_open_device|_verbs_init_and_alloc_context) value=0 ;;
		ibv_*|execute_ioctl) value=EOPNOTSUPP ;;
		r*) value=-1 ;;
		*) value=0 ;;
		esac
		echo "long $name(void);"
		echo "__attribute__((visibility(\"default\"))) long $name(void) {" \
			"edge_verbs_missing(\"$name\"); errno = EOPNOTSUPP; return $value; }"
	done
} >"$out.c"
