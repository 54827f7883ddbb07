#!/usr/bin/env bash
# Runs the gateway suite with our gateway and with other projects' gateways. The results are in
# docs/reference/capture-compared.md. `make compare-gateways` runs this script, and passes its
# arguments to tests/conformance/gateways/compare.py.
#
# The script installs the other gateways once from PyPI, each in a separate virtual environment:
# verifiers and NeMo Gym in .cache/bench (`make bench` uses them, too), the others in
# .cache/gateways. If a gateway can't be installed, the script and the table report it as ABSENT.
#
#   PYTHON_VERIFIERS, PYTHON_NEMO   see tools/setup-bench-peers.sh
#   PYTHON_GATEWAYS                 the Python interpreter for the other gateways (default: python3.12)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/gateways
mkdir -p "$cache"

say() { echo "compare-gateways: $*" >&2; }

# install NAME PACKAGE… installs packages in a new virtual environment. If that fails, the environment
# is removed.
install() {
    local name=$1 env=$cache/$1 python=${PYTHON_GATEWAYS:-$(command -v python3.12 || true)}
    shift
    [ -e "$env/installed" ] && return
    if [ -z "$python" ] || ! "$python" -c '' 2>/dev/null; then
        say "$name: ABSENT (Python 3.12 was not found; set PYTHON_GATEWAYS=/path/to/python3.12)"
        return
    fi
    say "installing $name (takes some minutes)"
    rm -rf "$env"
    if "$python" -m venv "$env" &&
        "$env/bin/python" -m pip install -qq --disable-pip-version-check "$@"; then
        touch "$env/installed"
        return
    fi
    rm -rf "$env"
    say "$name: ABSENT (pip could not install it: see the output above)"
}

PEERS="verifiers nemo" tools/setup-bench-peers.sh
install openenv openenv==0.10.0
install rllm rllm-model-gateway==0.1.0
install agent-lightning agentlightning==1.0.2
exec .venv/bin/python -m tests.conformance.gateways.compare "$@"
