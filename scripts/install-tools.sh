#!/usr/bin/env bash
# Installs the test programs that are crates into a directory, in the versions that the tests know; does nothing when they
# are there.
#
#   scripts/install-tools.sh [DIRECTORY]
#
# DIRECTORY is target/tools by default. Exit status: 0 all there, 1 something could not be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${1:-target/tools}

# install CRATE VERSION
install() {
    [ "$(cat "$tools/$1.version" 2>/dev/null)" != "$2" ] || return 0
    printf 'install-tools: installing %s %s\n' "$1" "$2" >&2
    cargo install --quiet --root "$tools" --locked "$1" --version "$2"
    printf '%s\n' "$2" >"$tools/$1.version"
}

install fsx 0.3.2
install pjdfstest 0.2.2
