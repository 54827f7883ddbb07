#!/usr/bin/env bash
# Builds the optimised `collect` programs of the clients in other languages, for `make bench-clients`.
# The tests use tools/test-clients.sh instead.
#
#   tools/build-collectors.sh            builds the programs in all languages
#   tools/build-collectors.sh go rust    builds the programs in Go and Rust
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
        command -v "$tool" >/dev/null || fail "the client in $1 needs $tool, but $tool is not on PATH"
    done
}

for language in "${languages[@]}"; do
    case $language in
    go) need go go ;;
    typescript) need typescript node npm ;;
    java) need java java mvn ;;
    rust) need rust cargo ;;
    *) fail "unknown language '$language'; choose from: go typescript java rust" ;;
    esac
done

for language in "${languages[@]}"; do
    echo "== building the collector in $language"
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
