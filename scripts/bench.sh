#!/usr/bin/env bash
# The body of `make bench`: the figures this project promises, one after the other, into target/bench.
#
#   scripts/bench.sh             all of them
#   scripts/bench.sh NAME...     some of them: safety overlap contention stripes ceiling flush modes locks doors
#                                tiles checkpoint search collective strided-locks
#
# Each figure leaves NAME.txt (the table), NAME.json and NAME.svg. Bandwidths are comparable inside one run only.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
out=$target/bench
ccpfs=$target/release/ccpfs
rounds=${CCPFS_BENCH_ROUNDS:-5}
small=2856 # transfers of 47,008 bytes that make up about 128 MiB

ior() {
    local name=$1
    shift
    printf '\n== %s: ccpfs bench ior %s\n\n' "$name" "$*"
    "$ccpfs" bench ior "$@" --json "$out/$name.json" --plot "$out/$name.svg" </dev/null | tee "$out/$name.txt"
}

# Every byte right: all patterns, stripes, transfers, client counts, policies.
safety() {
    local clients
    for clients in 4 16; do
        ior "safety-$clients-clients" --pattern nn,segmented,strided --clients $clients --servers 2 \
            --stripes 1,2,4 --transfer 4KiB,64KiB,47008,1MiB --per-client 8MiB \
            --policy seqdlm,basic,lustre --rounds 1 --verify
    done
}

# Paper 000, Fig. 7 and section V-B1: overlapping full-range writes; readers must see one writer's complete data.
overlap() {
    ior overlap --workload overlap --clients 16 --servers 1 --stripes 1,2 --per-client 16MiB \
        --policy seqdlm,basic,lustre --rounds 10 --verify
}

# Conflicting writers against a device of 500 MiB/s, one stripe.
contention() {
    ior contention --pattern segmented,strided --clients 4 --servers 1 --stripes 1 --transfer 64KiB,1MiB \
        --per-client 256MiB --policy memcpy,local,seqdlm,lustre,basic --rounds "$rounds" --device-bandwidth 500MiB/s
}

# The same with four stripes and transfers that fit no page.
stripes() {
    ior stripes --pattern segmented,strided --clients 4 --servers 1 --stripes 4 --transfer 47008 \
        --per-client $((47008 * small)) --policy memcpy,local,seqdlm,lustre,basic --rounds "$rounds" \
        --device-bandwidth 500MiB/s
}

# Against copying memory and against the local page cache.
ceiling() {
    ior ceiling --pattern segmented --clients 4 --servers 1 --stripes 1 --transfer 1MiB --per-client 128MiB \
        --policy seqdlm,local,memcpy --rounds "$rounds"
}

# With fsync, no limit of the device: many small unaligned writes of one file against a file for each process.
flush() {
    ior flush-nn --pattern nn --clients 4 --servers 1 --stripes 1 --transfer 1MiB --per-client 128MiB \
        --policy seqdlm,local --rounds "$rounds"
    ior flush-strided --pattern strided --clients 4 --servers 1 --stripes 1 --transfer 47008 \
        --per-client $((47008 * small)) --policy seqdlm,local --rounds "$rounds"
}

# Paper 000, Figs 16-19: each mode and feature alone.
modes() {
    local workload
    for workload in conflict-sequential conflict-parallel; do
        ior "$workload" --workload $workload --mode nbw,pw --clients 4 --servers 1 --stripes 1 \
            --transfer 64KiB,1MiB --per-client 32MiB \
            --policy seqdlm,seqdlm-no-early-revocation,seqdlm-no-early-grant \
            --rounds "$rounds" --device-bandwidth 500MiB/s
    done
    ior mixed-read-write --workload mixed-read-write --clients 1 --servers 1 --stripes 1 --transfer 64KiB \
        --per-client 16MiB --policy seqdlm,seqdlm-no-upgrading --rounds "$rounds" --device-bandwidth 500MiB/s
    ior two-stripe --workload two-stripe --mode bw --clients 4 --servers 1 --stripes 2 --transfer 64KiB,1MiB \
        --per-client 32MiB --policy seqdlm,seqdlm-no-downgrading --rounds "$rounds" --device-bandwidth 500MiB/s
}

# Locks alone: requests per second of one shard, and a hit in the client.
locks() {
    printf '\n== locks: ccpfs bench locks-rate\n\n'
    "$ccpfs" bench locks-rate --json "$out/locks.json" </dev/null | tee "$out/locks.txt"
    cargo run --quiet --release -p ccpfs-dlm --example lock_hit | tee -a "$out/locks.txt"
}

# The same programs through the C interface, the preload library and the mount, beside the local file system and a
# pass-through of it: bandwidths, and rates of names.
doors() {
    printf '\n== doors: ccpfs bench doors\n\n'
    "$ccpfs" bench doors --rounds "$rounds" --json "$out/doors.json" --plot "$out/doors.svg" </dev/null |
        tee "$out/doors.txt"
}

# One of the benchmarks with calls of many pieces: NAME, subcommand, options.
pieces() {
    local name=$1
    shift
    printf '\n== %s: ccpfs bench %s\n\n' "$name" "$*"
    "$ccpfs" bench "$@" --rounds "$rounds" --json "$out/$name.json" --plot "$out/$name.svg" </dev/null |
        tee "$out/$name.txt"
}

# Paper 000, Fig. 23: overlapping tiles, each one atomic call; the exact locks of DLM-datatype beside SeqDLM.
tiles() {
    pieces tiles tile-io --columns 2 --rows 2 --width 2048 --height 2048 --overlap 100 --stripes 1,4 \
        --policy seqdlm,datatype --device-bandwidth 500MiB/s
}

# Paper 001, Figs. 8 and 9: a checkpoint of four arrays with atomic calls, beside a group lock (none).
checkpoint() {
    pieces checkpoint s3d --side 128 --processes 4 --stripes 1,4 \
        --lock datatype-alt-try,list-one-try,posix-one-try,pieces,group
}

# Paper 001, Fig. 12: results without any pattern, each call made persistent.
search() {
    pieces search s3asim --workers 4 --stripes 4 --stripe-size 64KiB --lock list-one-try,posix-one-try,pieces,group
}

# Paper 004, Fig. 6: what aggregators send.
collective() {
    pieces collective collective --processes 4 --stripes 2 --unit 1MiB --per-process 256MiB --policy seqdlm,lustre
}

# Paper 001, Figs. 4 to 7: 128 K locks of one byte each, over servers and by the rules alone.
strided-locks() {
    pieces strided-locks locks --locks 131072 --clients 4 --servers 2 --overlap 0,25,50,75,100 --kind datatype,list
    pieces strided-locks-posix locks --locks 16384 --clients 4 --servers 2 --gap 64
    pieces strided-locks-rules locks --rules --locks 131072 --clients 4 --servers 2
}

all=(safety overlap contention stripes ceiling flush modes locks doors tiles checkpoint search collective strided-locks)
[ $# -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do
    case " ${all[*]} " in
    *" $name "*) ;;
    *)
        printf 'bench: no figure is called %s; there are: %s\n' "$name" "${all[*]}" >&2
        exit 1
        ;;
    esac
done

scripts/install-packages.sh gcc libc6-dev
cargo build --release --workspace --exclude xtask --exclude ccpfs-e2e
mkdir -p "$out"
for name in "$@"; do "$name"; done
printf '\nTables, figures and plots are in %s\n' "$out"
