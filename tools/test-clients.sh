#!/usr/bin/env bash
# Builds and tests the clients in other languages, and lets their `collect` programs collect from a
# mesh of ours. Run by `make test-clients`.
#
#   tools/test-clients.sh               all of them
#   tools/test-clients.sh go rust       these
#   tools/test-clients.sh --build       set up, regenerate and compile only
#
# Each client sets itself up by its own Makefile, from its language's package registry; a toolchain
# that is missing is named, and the command then fails before anything is built.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=(setup check-generated build test)
if [ "${1:-}" = --build ]; then
    steps=(setup check-generated build)
    shift
fi
languages=("$@")
[ ${#languages[@]} -gt 0 ] || languages=(go typescript java rust)

fail() {
    echo "test-clients: $*" >&2
    exit 1
}

need() { # need LANGUAGE TOOL WHAT
    command -v "$2" >/dev/null || fail "$1 needs $2: install $3, or name the languages to be tested"
}

for language in "${languages[@]}"; do
    case $language in
    go) need go go "Go 1.26 or newer" ;;
    typescript) need typescript npm "Node.js 20 or newer with npm" ;;
    java) need java javac "a JDK 17 or newer" && need java mvn "Maven 3.8 or newer" ;;
    rust) need rust cargo "Rust 1.90 or newer" ;;
    *) fail "there is no client in '$language'; there are: go typescript java rust" ;;
    esac
done

for language in "${languages[@]}"; do
    for step in "${steps[@]}"; do
        echo "== $language: $step"
        make --no-print-directory -C "clients/$language" "$step"
    done
done

[ "${steps[-1]}" = test ] || exit 0

for language in "${languages[@]}"; do
    if [ "$language" = go ]; then
        go -C clients/go build -o ../../.cache/clients/go/collect ./cmd/collect
    fi
done

echo "== all: collecting from a mesh"
GYMMESH_TEST_CLIENTS="${languages[*]}" .venv/bin/python -m pytest tests/clients
