#!/usr/bin/env bash
# Builds the MPI-IO layer: a library that is loaded in front of MPI, in C.
#
#   scripts/build-mpiio.sh [OUTPUT [MPICC]]
#
# OUTPUT is target/release/libccpfs_mpiio.so by default; libccpfs.so is looked for beside it when it is used. MPICC is the compiler of the
# MPI that programs use: mpicc.mpich by default, or mpicc where that is all there is. The layer fits one MPI only. Exit status: 0 built, 1 not.
set -euo pipefail
cd "$(dirname "$0")/.."
output=${1:-${CARGO_TARGET_DIR:-target}/release/libccpfs_mpiio.so}
mpicc=${2:-}
if [ -z "$mpicc" ]; then
    mpicc=mpicc.mpich
    command -v "$mpicc" >/dev/null || mpicc=mpicc
fi
if ! command -v "$mpicc" >/dev/null; then
    printf 'build-mpiio: there is no %s: install mpich and libmpich-dev, or name the compiler of your MPI\n' "$mpicc" >&2
    exit 1
fi
# Written beside and renamed: a program that has the old one loaded keeps it. One warning of GCC is wrong about MPI_STATUSES_IGNORE.
"$mpicc" -std=gnu11 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -Wno-stringop-overflow \
    -o "$output.new" doors/mpiio/src/*.c -ldl -lpthread
mv -f "$output.new" "$output"
