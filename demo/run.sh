#!/usr/bin/env bash
# The body of `make demo`: a small benchmark under three lock managers, then an unmodified MPI + HDF5 program on ccPFS.
#
# Everything it makes lies in target/demo. Exit status: 0 only if every byte was right.
set -euo pipefail
cd "$(dirname "$0")/.."

ranks=4
elements=${CCPFS_DEMO_ELEMENTS:-65521}
per_client=${CCPFS_DEMO_PER_CLIENT:-64MiB}
target=${CARGO_TARGET_DIR:-$PWD/target}
out=$target/demo
state=$out/cluster
ccpfs=$target/release/ccpfs

heading() { printf '\n== %s\n\n' "$*"; }
say() { printf '%s\n' "$*"; }

heading "Packages and build"
scripts/install-packages.sh gcc libc6-dev mpich libhdf5-mpich-dev hdf5-tools pkg-config jq
cargo build --release --workspace --exclude xtask --exclude ccpfs-e2e
mkdir -p "$out"

stop_cluster() { "$ccpfs" down --state "$state" </dev/null >/dev/null 2>&1 || true; }
at_exit() {
    status=$?
    trap '' INT TERM
    stop_cluster
    if [ "$status" -ne 0 ]; then
        say "demo: failed; logs and files are in $out" >&2
    fi
}
trap at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

heading "Many writers of one file, under three lock managers"
say "Four processes write; the device is limited to 500 MiB/s; every byte is read back by another process."
say "memcpy: the same bytes copied into memory. local: the same writers on the local file system."
say
"$ccpfs" bench ior --pattern segmented,strided --clients 4 --servers 1 --stripes 1 --transfer 64KiB,1MiB \
    --per-client "$per_client" --policy memcpy,local,seqdlm,lustre,basic --rounds 3 \
    --device-bandwidth 500MiB/s --verify --json "$out/ior.json" --plot "$out/ior.svg"

heading "A cluster of two servers on this machine"
stop_cluster # what an interrupted demo may have left
"$ccpfs" up --state "$state" --servers 2
"$ccpfs" status --state "$state"
shared=$state/ns/hdf5
own=$out/local
rm -rf "$own"
mkdir -p "$shared" "$own"

heading "An MPI program writes one HDF5 file with parallel HDF5: $ranks ranks, nothing relinked or recompiled for ccPFS"
read -r -a flags <<<"$(pkg-config --cflags --libs hdf5-mpich)"
mpicc.mpich -O2 -Wall -o "$out/hdf5_shared" demo/hdf5_shared.c "${flags[@]}"
on_ccpfs=("$ccpfs" exec --state "$state" --)

for how in collective independent; do
    file=$shared/$how.h5
    "${on_ccpfs[@]}" rm -f "$file"
    say "$how writes, on ccPFS and on the local file system"
    mpiexec.mpich -n "$ranks" "${on_ccpfs[@]}" "$out/hdf5_shared" --write "$file" --$how --elements "$elements"
    mpiexec.mpich -n "$ranks" "$out/hdf5_shared" --write "$own/$how.h5" --$how --elements "$elements"
    mpiexec.mpich -n 3 "${on_ccpfs[@]}" "$out/hdf5_shared" --verify "$file" | tee "$out/$how.verified"
    # The first line of a dump names the file; the rest must be equal to the last digit.
    "${on_ccpfs[@]}" h5dump "$file" | tail -n +2 >"$out/$how.ccpfs.dump"
    h5dump "$own/$how.h5" | tail -n +2 >"$out/$how.local.dump"
    cmp "$out/$how.ccpfs.dump" "$out/$how.local.dump"
    "${on_ccpfs[@]}" h5diff "$file" "$own/$how.h5"
    say "  h5dump of the two files: $(wc -l <"$out/$how.ccpfs.dump") lines, no difference; h5diff: no difference"
done
say
say "h5ls through the preload:"
"${on_ccpfs[@]}" h5ls -r "$shared/independent.h5"
say
say "ls -l through the preload, and without it (the stubs of the namespace directory):"
"${on_ccpfs[@]}" ls -l "$shared"
ls -l "$shared"
bytes=$("${on_ccpfs[@]}" stat -c %s "$shared/independent.h5")

heading "Down"
"$ccpfs" down --state "$state"

# Median of a figure of ior.json: policy, pattern, transfer in bytes, field; in MiB/s.
figure() {
    jq -r --arg policy "$1" --arg pattern "$2" --argjson transfer "$3" --arg field "$4" \
        '[.summary[] | select(.policy == $policy and .pattern == $pattern and .transfer_bytes == $transfer)
         | .[$field] / 1048576][0] // 0 | round' "$out/ior.json"
}
pio() { figure "$1" "$2" "$3" pio_bytes_per_second_median; }
total() { figure "$1" "$2" "$3" total_bytes_per_second_median; }
times() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.1f", a / b; else printf "?" }'; }

heading "What was shown"
for transfer in 1048576 65536; do
    s=$(pio seqdlm strided $transfer) b=$(pio basic strided $transfer) l=$(pio lustre strided $transfer)
    say "* Four processes write one file in turns of $((transfer / 1024)) KiB (N-1 strided). Until the last write call returned:"
    say "  seqdlm $s MiB/s, basic $b, lustre $l: $(times "$s" "$b") and $(times "$s" "$l") times as fast."
    say "  Each in a segment of its own (no conflicts): seqdlm $(pio seqdlm segmented $transfer) MiB/s," \
        "basic $(pio basic segmented $transfer), lustre $(pio lustre segmented $transfer)."
    say "  With the flush to the limited device: seqdlm $(total seqdlm strided $transfer) MiB/s," \
        "basic $(total basic strided $transfer), lustre $(total lustre strided $transfer); the device gives 500."
done
say "* $(jq '[.runs[] | select(.verified == true) | .bytes] | add // 0 | . / 1048576 | round' "$out/ior.json") MiB were" \
    "read back by processes that had not written them; every byte was right."
say "* An MPI program with parallel HDF5 wrote one file of $bytes bytes from $ranks ranks, collectively and independently;"
say "  three other ranks read it back right, and Debian's h5dump and h5diff see the same contents as in the"
say "  file that the same program wrote on the local file system."
say
say "Table: above. Figures: $out/ior.json. Plot: $out/ior.svg."
