#!/bin/sh
# Checks that the scan core compiles for arm64, which no machine of the tests is: libc's names differ from x86-64's.
set -eu
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] && ! rustup --quiet target add $target 2>/dev/null; then
    echo "NOT CHECKED: whether it compiles for arm64 needs rustup target add $target"
    exit 0
fi
cargo check --quiet --target $target --no-default-features
