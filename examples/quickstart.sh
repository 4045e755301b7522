#!/bin/sh
# quickstart: from a clone to a trained network. Installs what is missing (Debian and Ubuntu), builds, trains on the digits.
#
#   sh examples/quickstart.sh                    everything; a second run only trains
#   sh examples/quickstart.sh --build [package ...]   installs (these packages too) and builds, and stops there
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
needed='cmake make gcc libc6-dev pkg-config libluajit-5.1-dev zlib1g-dev libopenblas-pthread-dev libzmq3-dev'

say() { printf '== %s\n' "$*"; }
fail() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

build_only=no
if [ "${1-}" = --build ]; then
    build_only=yes
    shift
    needed="$needed $*"
elif [ $# -gt 0 ]; then
    fail "unknown argument '$1'; it takes --build [package ...], or nothing"
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a "$@"
    else
        fail "these packages are missing:$missing. Install them as root, or install sudo, and start again"
    fi
}

install_missing() {
    missing=
    for package in $needed; do
        # shellcheck disable=SC2016 # the format is dpkg-query's
        dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing$missing"
    as_root apt-get -q -o DPkg::Lock::Timeout=120 update || say 'the package lists could not be refreshed; trying with those there are'
    # shellcheck disable=SC2086 # a list of words
    as_root apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 install --no-install-recommends $missing ||
        fail "apt could not install$missing"
}

# Without apt we only look: what the build needs must be there already.
look_for_tools() {
    absent=
    for tool in cmake make gcc pkg-config; do
        command -v "$tool" >/dev/null 2>&1 || absent="$absent $tool"
    done
    if command -v pkg-config >/dev/null 2>&1; then
        for library in luajit zlib; do
            pkg-config --exists "$library" || absent="$absent $library"
        done
    fi
    [ -z "$absent" ] && return 0
    cat >&2 <<END
quickstart: this is no Debian or Ubuntu, so nothing was installed. Not found:$absent
What the build needs:
  CMake 3.25 or later, make, a C11 compiler (gcc or clang), pkg-config
  LuaJIT 2.1 with headers, zlib with headers, OpenBLAS and ZeroMQ with headers (recommended)
END
    exit 1
}

build() {
    say 'building'
    fresh=
    # A build folder that came with a copied tree names another place: start it anew.
    if [ -f build/CMakeCache.txt ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" build/CMakeCache.txt; then
        fresh=--fresh
    fi
    cmake --preset release $fresh || fail 'CMake (3.25 or later is needed) could not configure the build; the reason stands above'
    cmake --build build --parallel "$(nproc 2>/dev/null || echo 2)" || fail 'the build failed; the reason stands above'
}

cd -- "$root"
if command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1; then
    install_missing
else
    look_for_tools
fi
build
[ "$build_only" = no ] || exit 0

say 'training on 1,797 handwritten digits (examples/digits/main.lua)'
exec build/argand examples/digits/main.lua
