#!/usr/bin/env bash
# Builds and tests the clients in other languages, and lets their programs take part in a mesh of
# ours. Run by `make test-clients`.
#
#   tools/test-clients.sh               all of them
#   tools/test-clients.sh go rust       these
#   tools/test-clients.sh --build       set up, regenerate and compile only, the tests too
#   tools/test-clients.sh --test        test only what --build built
#   tools/test-clients.sh --generate    set up, and regenerate the stubs
#
# Each client sets itself up by its own Makefile, from its language's package registry; a toolchain
# that is missing is named, and the command then fails before anything is built. Ends with how long
# each step took.
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
    command -v "$2" >/dev/null || fail "$1 needs $2: install $3, or name the languages to be tested"
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
    *) fail "there is no client in '$language'; there are: go typescript java rust" ;;
    esac
done

for language in "${languages[@]}"; do
    for step in "${steps[@]}"; do
        timed "$language: $step" make --no-print-directory -C "clients/$language" "$step"
    done
done

if [ "${steps[-1]}" = test ]; then
    export GYMMESH_TEST_CLIENTS="${languages[*]}"
    timed "all: in a mesh" .venv/bin/python -m pytest tests/clients
fi
printf '%s' "$took"
