#!/bin/sh
# packages.check.sh FOLDER VERSION CC: unpacks the C packages in FOLDER into a root of their own, and uses them there as
# the manuals say: libfabric finds the provider, a C program is built by pkg-config and starts. Needs no daemon.
set -eu
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "FAIL: packages: $*"; exit 1; }
for package in libedge1 libedge-dev edge-preload libfabric-edge edge-verbs libedge-dsm1 libedge-dsm-dev; do
	deb=$(ls -t "$1/$package"_*"_$arch.deb" | head -n 1)
	dpkg-deb -x "$deb" "$root"
done
lib=/usr/lib/$($3 -print-multiarch)
export LD_LIBRARY_PATH="$root$lib" EDGE_SOCKET="$root/none"

# The list names what was loaded; more than that needs a daemon.
command -v fi_info >/dev/null || fail "fi_info is missing: apt-get install libfabric-bin"
FI_PROVIDER_PATH="$root$lib/libfabric" fi_info -l | grep -q '^edge:' || fail "libfabric does not find the provider"
fi_info -l | grep -q '^edge:' && fail "there is another provider edge: this one was not looked at"

export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR="$root$lib/pkgconfig"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 # which are not the system's, in this root
[ "$(pkg-config --modversion edge)" = "$2" ] || fail "edge.pc says version $(pkg-config --modversion edge), not $2"
examples="$root/usr/share/doc/libedge-dev/examples"
for form in shared static; do
	flags=$(pkg-config --cflags --libs edge)
	[ $form = shared ] || flags="-static $(pkg-config --static --cflags --libs edge)"
	for example in put table; do
		$3 -Wall -Werror -o "$root/$example" "$examples/$example.c" $flags || fail "$example, $form"
	done
	said=$("$root/put" peer service memory text 2>&1) && fail "put works without a daemon"
	case $said in *"no daemon answers"*) ;; *) fail "put, $form, says: $said" ;; esac
done
# A program of PARMACS, as a run of one rank, which needs no daemon.
command -v m4 >/dev/null || fail "m4 is missing: apt-get install m4"
m4 "$(pkg-config --variable=parmacs edge-dsm)" "$root/usr/share/doc/libedge-dsm-dev/examples/parmacs.C" \
	>"$root/parmacs.c"
for form in shared static; do
	flags=$(pkg-config --cflags --libs edge-dsm)
	[ $form = shared ] || flags="-static $(pkg-config --static --cflags --libs edge-dsm)"
	$3 -Wall -Werror -o "$root/parmacs" "$root/parmacs.c" $flags "-Wl,-rpath-link,$root$lib" || fail "parmacs, $form"
	said=$("$root/parmacs" 1 | tail -n 1)
	[ "$said" = right ] || fail "parmacs, $form, says: $said"
done
python=$(LIBEDGE="$root$lib/libedge.so.1" python3 "$examples/get.py" peer service memory 1 2>&1) && fail "get.py works"
case $python in *"no daemon answers"*) ;; *) fail "get.py says: $python" ;; esac
run=$("$root/usr/bin/edge-run" true 2>&1) && [ -z "$run" ] || fail "edge-run says: $run"
for library in libibverbs librdmacm; do
	LD_LIBRARY_PATH="$root$lib/edge-verbs" python3 -c "import ctypes; ctypes.CDLL('$library.so.1')" ||
		fail "$library.so.1 cannot be loaded"
done
help=$("$root/usr/bin/edge-verbs" --help) && [ -n "$help" ] || fail "edge-verbs has no help"
echo "packages: ok"
