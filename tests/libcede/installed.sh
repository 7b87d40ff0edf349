#!/bin/sh
# What is installed is enough to build and run examples/requests.c, shared and static, leases.c and step.c, and to build
# slices.c and serve.c where there are OpenCL and libmicrohttpd; each header stands alone in C11 and, with a compiler for
# it, in C++17, as serve.cpp is; only names of ours are exported. Skips (77) without a compiler or pkg-config.
#
# usage: installed.sh BUILD_DIR SOURCE_DIR
set -eu
command -v pkg-config >/dev/null && command -v cc >/dev/null || exit 77
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
DESTDIR=$d/root meson install -C "$1" --no-rebuild --quiet --tags runtime,devel >/dev/null
pc=$(find "$d/root" -name cede.pc)
[ -n "$pc" ] && [ -n "$(find "$d/root" -name cede.h -path '*/include/cede/*')" ]
export PKG_CONFIG_LIBDIR="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$d/root" CEDE_DIR="$d"
lib=$(dirname "${pc%/*}")
# shellcheck disable=SC2046
cc -Wall -Werror "$2/examples/requests.c" $(pkg-config --cflags --libs cede) -o "$d/shared"
# shellcheck disable=SC2046
cc -Wall -Werror "$2/examples/requests.c" $(pkg-config --cflags cede) "$lib/libcede.a" -pthread -o "$d/static"
# shellcheck disable=SC2046
cc -Wall -Werror "$2/examples/leases.c" $(pkg-config --cflags --libs cede) -o "$d/leases"
# shellcheck disable=SC2046
cc -Wall -Werror "$2/examples/step.c" $(pkg-config --cflags --libs cede) -o "$d/step"
if echo '#include <CL/cl.h>' | cc -E - >/dev/null 2>&1 && echo 'int main(void) { return 0; }' | cc -x c - -lOpenCL -o "$d/x" 2>/dev/null; then
    # shellcheck disable=SC2046
    cc -Wall -Werror -Wno-deprecated-declarations "$2/examples/slices.c" $(pkg-config --cflags --libs cede) -lOpenCL -o "$d/slices"
fi
if echo '#include <microhttpd.h>' | cc -E - >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    (cd "$2/examples" && cc -Wall -Werror serve.c serve_http.c serve_model.c $(pkg-config --cflags --libs cede) -lmicrohttpd -o "$d/serve")
fi
find "$d/root" -path '*/include/cede/*.h' >"$d/headers"
[ -s "$d/headers" ]
while read -r header; do
    cc -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only -I"${header%/cede/*}" -x c "$header"
    if command -v c++ >/dev/null; then
        c++ -std=c++17 -Wall -Wextra -pedantic -Werror -fsyntax-only -I"${header%/cede/*}" -x c++ "$header"
    fi
done <"$d/headers"
find "$d/root" -path '*/include/cede/*.hpp' >"$d/hpp"
[ -s "$d/hpp" ]
if command -v c++ >/dev/null; then
    while read -r header; do
        c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"${header%/cede/*}" -x c++ "$header"
    done <"$d/hpp"
fi
for cxx in c++ clang++; do
    command -v $cxx >/dev/null || continue
    # shellcheck disable=SC2046
    $cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror -Wconversion -Wold-style-cast -fsyntax-only \
        $(pkg-config --cflags cede) "$2/examples/serve.cpp"
done
LD_LIBRARY_PATH=$lib "$d/step" >"$d/steps"
grep -q "^    1    108       0 " "$d/steps"
grep -q "^    2    108       8 " "$d/steps"
LD_LIBRARY_PATH=$lib "$d/shared" | grep -q '^100 requests'
LD_LIBRARY_PATH=$lib "$d/leases" | grep -q 'leases on the first of .*ok$'
"$d/static" | grep -q '^100 requests'
readelf -d "$d/shared" | grep -q 'libcede\.so\.0'
none() { # standard input has no line; `!` would not end the script
    if grep .; then exit 1; fi
}
readelf -d "$d/static" | { grep libcede || true; } | none
readelf -d "$lib/libcede.so.0" | grep NEEDED | { grep -v 'libc\.so' || true; } | none
nm -D --defined-only "$lib/libcede.so.0" | { grep -v ' cede_.*@@CEDE_0\.2$\| CEDE_0\.2$' || true; } | none
# A program that is linked with the archive may have functions of any name but cede_*. One name is <sys/sdt.h>'s.
nm -g --defined-only "$lib/libcede.a" | awk 'NF == 3 { n++ } NF == 3 && $3 !~ /^cede_|^_\.stapsdt\.base$/ { print; bad = 1 } END { exit bad || n < 50 }'
