#!/usr/bin/env bash
# The body of `make test`: everything that is checked, in the order of what fails fastest. Ends with a summary.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
summary=()
current=
started=$SECONDS

at_exit() {
    status=$?
    printf '\n'
    for line in "${summary[@]}"; do printf '%s\n' "$line"; done
    if [ "$status" -eq 0 ]; then
        printf 'all checks passed in %d s\n' $((SECONDS - started))
    else
        printf 'FAILED at: %s (after %d s)\n' "$current" $((SECONDS - started))
    fi
}
trap at_exit EXIT

# step NAME COMMAND...: runs one check and remembers how long it took.
step() {
    current=$1
    shift
    local begin=$SECONDS
    printf '\n== %s\n' "$current"
    "$@" </dev/null
    summary+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$current")")
}

shell_syntax() {
    local script
    for script in scripts/*.sh demo/*.sh .ci/run; do bash -n "$script"; done
}

documents() {
    # The C library and the command are both called ccpfs, so their pages are made one after the other.
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --document-private-items --workspace --exclude ccpfs-capi
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --document-private-items -p ccpfs-capi
}

# The pure crates must build where there is no operating system; skipped where no such target is installed.
bare_metal() {
    local bare=
    if command -v rustup >/dev/null; then
        bare=$(rustup target list --installed | grep -E -- '-none(-|$)' | head -n 1 || true)
    fi
    if [ -z "$bare" ]; then
        printf 'skipped: no bare-metal target installed (rustup target add x86_64-unknown-none)\n'
        return
    fi
    cargo check --quiet --target "$bare" -p ccpfs-types -p ccpfs-region -p ccpfs-access -p ccpfs-wire -p ccpfs-dlm -p ccpfs-writeback \
        -p ccpfs-extent-cache -p ccpfs-namespace -p ccpfs-cached-stripe -p ccpfs-shard
}

release() {
    cargo build --quiet --release --workspace --exclude xtask --exclude ccpfs-e2e --exclude ccpfs-semantics \
        --exclude ccpfs-test-support
    scripts/build-mpiio.sh "$target/release/libccpfs_mpiio.so" mpicc.mpich
}

# Every world of the model checker's table, each for a bounded time.
model() {
    cargo run --quiet --release -p ccpfs-model -- --fail-fast --states-max 250000 --seconds-max 20
}

# Random worlds with faults and all checkers: as many seeds as fit into a few minutes of a slow machine.
exploration() {
    "$target/release/ccpfs" sim explore --seeds "${CCPFS_SEEDS:-20000}"
}

# The figures in small: that every run of the page still works, not what it finds.
figures() {
    local out
    out=$(mktemp -d)
    "$target/release/ccpfs" sim figures --quick --out "$out" && test -s "$out/index.html"
    rm -rf "$out"
}

end_to_end() {
    CCPFS_BIN_DIR=$target/release cargo test --quiet -p ccpfs-e2e
}

# Every clause of docs/semantics.md through every door; CCPFS_SEMANTICS_LONG=1 for the long form.
semantics() {
    # Most of them wait for disks and other processes.
    RUST_TEST_THREADS=4 CCPFS_BIN_DIR=$target/release CCPFS_TOOLS_DIR=$target/tools \
        cargo test --quiet -p ccpfs-semantics --no-fail-fast
}

step "packages" scripts/install-packages.sh gcc libc6-dev make pkg-config procps python3 fio mpich gfortran openmpi-bin libopenmpi-dev libpnetcdf-dev \
    libhdf5-mpich-dev hdf5-tools git sqlite3 stress-ng tar fuse3 util-linux
step "format" cargo fmt --all --check
step "scripts" shell_syntax
step "layers" cargo xtask layers
step "tidy" cargo xtask tidy
step "cites" cargo xtask cites
step "clippy" cargo clippy --quiet --workspace --all-targets -- -D warnings
step "documents" documents
step "bare metal" bare_metal
step "tests" cargo test --quiet --workspace --exclude ccpfs-e2e --exclude ccpfs-semantics
step "release build" release
step "end-to-end tests" end_to_end
step "tools" scripts/install-tools.sh "$target/tools"
step "semantics" semantics
step "model checker" model
step "exploration" exploration
step "figures" figures
step "canaries" cargo xtask canaries
