#!/usr/bin/env bash
# Builds and tests the clients in other languages, and runs their programs in a gymmesh mesh.
# `make test-clients` runs this script.
#
#   tools/test-clients.sh               all clients
#   tools/test-clients.sh go rust       only the clients in Go and Rust
#   tools/test-clients.sh --build       set up the clients, check that their stubs are up to date, and
#                                       compile the clients and their tests, without running tests
#   tools/test-clients.sh --test        only run the tests, after --build
#   tools/test-clients.sh --generate    set up the clients, and regenerate their stubs
#
# Each client has its own Makefile, which installs packages from the language's registry. If a
# toolchain is missing, the script names it and fails before it builds anything. At the end, the script
# prints the time of each step.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=(setup check-generated build test)
case ${1:-} in
--build)
    steps=(setup check-generated build)
    shift
    ;;
--test)
    steps=(test)
    shift
    ;;
--generate)
    steps=(setup generate)
    shift
    ;;
esac
languages=("$@")
[ ${#languages[@]} -gt 0 ] || languages=(go typescript java rust)

fail() {
    echo "test-clients: $*" >&2
    exit 1
}

need() { # need LANGUAGE TOOL WHAT
    command -v "$2" >/dev/null ||
        fail "the client in $1 needs $2: install $3, or select other languages with LANGUAGES=\"…\""
}

took=""
timed() { # timed NAME COMMAND…
    local name=$1 began=$SECONDS
    shift
    echo "== $name"
    "$@"
    took+=$(printf '%5d s  %s' $((SECONDS - began)) "$name")$'\n'
}

for language in "${languages[@]}"; do
    case $language in
    go) need go go "Go 1.26 or newer" ;;
    typescript) need typescript npm "Node.js 20 or newer with npm" ;;
    java) need java javac "a JDK 17 or newer" && need java mvn "Maven 3.8 or newer" ;;
    rust) need rust cargo "Rust 1.90 or newer" ;;
    *) fail "unknown language '$language'; choose from: go typescript java rust" ;;
    esac
done

for language in "${languages[@]}"; do
    for step in "${steps[@]}"; do
        timed "$language: $step" make --no-print-directory -C "clients/$language" "$step"
    done
done

if [ "${steps[-1]}" = test ]; then
    export GYMMESH_TEST_CLIENTS="${languages[*]}"
    timed "all clients in a mesh" .venv/bin/python -m pytest tests/clients
fi
printf '%s' "$took"
