#!/usr/bin/env bash
# Runs the gateway suite over our gateway and those of other projects: docs/reference/capture-compared.md.
# They are installed once from PyPI, each into an interpreter of its own: those that `make bench`
# compares with, too, into .cache/bench, the others into .cache/gateways. One that can't be installed
# is named, and the table then says so. `make compare-gateways` calls it; its arguments go to
# tests/conformance/gateways/compare.py.
#
#   PYTHON_VERIFIERS, PYTHON_NEMO   as of tools/setup-bench-peers.sh
#   PYTHON_GATEWAYS                 the interpreter for the others (default: python3.12)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/gateways
mkdir -p "$cache"

say() { echo "compare-gateways: $*" >&2; }

# install NAME PACKAGE… — into an environment of its own, kept only when all went well.
install() {
    local name=$1 env=$cache/$1 python=${PYTHON_GATEWAYS:-$(command -v python3.12 || true)}
    shift
    [ -e "$env/installed" ] && return
    if [ -z "$python" ] || ! "$python" -c '' 2>/dev/null; then
        say "$name: ABSENT (no Python 3.12; PYTHON_GATEWAYS names one)"
        return
    fi
    say "installing $name (some minutes)"
    rm -rf "$env"
    if "$python" -m venv "$env" &&
        "$env/bin/python" -m pip install -qq --disable-pip-version-check "$@"; then
        touch "$env/installed"
        return
    fi
    rm -rf "$env"
    say "$name: ABSENT (it could not be installed, see above)"
}

PEERS="verifiers nemo" tools/setup-bench-peers.sh
install openenv openenv==0.10.0
install rllm rllm-model-gateway==0.1.0
install agent-lightning agentlightning==1.0.2
exec .venv/bin/python -m tests.conformance.gateways.compare "$@"
