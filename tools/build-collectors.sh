#!/usr/bin/env bash
# Sets up the clients in other languages and builds their `collect` programs alone, optimised, for
# `make bench-clients`. The tests build theirs by tools/test-clients.sh.
#
#   tools/build-collectors.sh            all of them
#   tools/build-collectors.sh go rust    these
set -euo pipefail
cd "$(dirname "$0")/.."
languages=("$@")
[ ${#languages[@]} -gt 0 ] || languages=(go typescript java rust)

fail() {
    echo "build-collectors: $*" >&2
    exit 1
}

need() { # need LANGUAGE TOOL…
    for tool in "${@:2}"; do
        command -v "$tool" >/dev/null || fail "$1 needs $tool, which is not on PATH"
    done
}

for language in "${languages[@]}"; do
    case $language in
    go) need go go ;;
    typescript) need typescript node npm ;;
    java) need java java mvn ;;
    rust) need rust cargo ;;
    *) fail "there is no client in '$language'; there are: go typescript java rust" ;;
    esac
done

for language in "${languages[@]}"; do
    echo "== $language: its collector"
    case $language in
    go) go -C clients/go build -o ../../.cache/clients/go/collect ./examples/collect ;;
    typescript)
        make --no-print-directory -C clients/typescript setup build
        npm --prefix clients/typescript run build:dev
        ;;
    java) make --no-print-directory -C clients/java setup build ;;
    rust) cargo build --release --manifest-path clients/rust/Cargo.toml --example collect ;;
    esac
done
