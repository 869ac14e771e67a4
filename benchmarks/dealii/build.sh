#!/usr/bin/env bash
# Build the program of each order: build.sh [--into FOLDER] ORDER...  (orders 2, 4, 6 and 8)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
into="$here/build"
if [[ ${1:-} == --into ]]; then
    into="${2:?--into needs a folder}"
    shift 2
fi
(($#)) || { echo "give orders: 2, 4, 6 or 8" >&2; exit 2; }
for order in "$@"; do
    [[ $order == [2468] ]] || { echo "order $order: give 2, 4, 6 or 8" >&2; exit 2; }
done

installed=/usr/include/deal.II/base/vectorization.h
[[ -f $installed ]] || { echo "$installed is missing: install libdeal.ii-dev" >&2; exit 1; }
mkdir -p "$into/include/deal.II/base"

# Debian builds deal.II without vector instructions. A copy of one header turns them on for the
# kernels that are compiled here. numbers.h goes first: the library's default stays one lane.
header="$into/include/deal.II/base/vectorization.h"
line='#if DEAL_II_VECTORIZATION_WIDTH_IN_BITS > 0'
name='DEAL_II_VECTORIZATION_WIDTH_IN_BITS'
sed "0,/^$line/s||#include <deal.II/base/numbers.h>\n#undef $name\n#define $name 512\n&|" \
    "$installed" >"$header"
grep -q "^#define $name 512" "$header" || { echo "$installed is not that of 9.4" >&2; exit 1; }

# GCC 12 warns of its own AVX-512 functions
flags=(-std=c++17 -march=native -DNDEBUG -DBOOST_BIND_GLOBAL_PLACEHOLDERS
    -Wall -Wno-maybe-uninitialized -isystem "$into/include")
for folder in trilinos suitesparse petsc hdf5/openmpi; do
    flags+=(-isystem "/usr/include/$folder")
done
compile() {  # compile SOURCE OBJECT FLAG...
    echo "compiling $(basename "$2")"
    mpicxx "${flags[@]}" "${@:3}" -c "$here/$1" -o "$into/$2"
}

# set-up is not timed: little optimisation, half the time to compile
compile common.cc common.o -O1
compile factory.cc factory.o -O1
for order in "$@"; do
    compile kernel.cc "kernel$order.o" -O3 "-DORDER=$order"
    mpicxx "$into/kernel$order.o" "$into/common.o" "$into/factory.o" -o "$into/dealii$order" \
        -Wl,--copy-dt-needed-entries -ldeal.ii -ltbb
done
