#!/usr/bin/env bash
# Installs the Debian packages named on the command line that are missing; does nothing when all are there.
#
#   scripts/install-packages.sh PACKAGE...
#
# Needs root, or sudo. Exit status: 0 all there, 1 something could not be installed.
set -euo pipefail

missing=()
for package in "$@"; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

say() { printf 'install-packages: %s\n' "$*" >&2; }

if ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]}"
    say "there is no apt-get here; install what corresponds to these Debian packages and run again"
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "missing: ${missing[*]}"
        say "installing needs root or sudo; as root, run: apt-get install --no-install-recommends ${missing[*]}"
        exit 1
    fi
    as_root=(sudo)
fi

say "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        say "failed: $*"
        exit 1
    fi
}
run apt-get update
run apt-get install -y --no-install-recommends "${missing[@]}"
