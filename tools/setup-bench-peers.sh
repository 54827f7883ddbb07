#!/usr/bin/env bash
# Installs the frameworks that `make bench` and `make bench-sandboxes` compare with (the peers):
# verifiers, NeMo Gym and Harbor, each in a separate virtual environment in .cache/bench (2 GB
# together). Skips peers that are already installed. If a peer can't be installed, the script reports
# the peer and still succeeds, and the bench prints ABSENT for the peer.
#
#   PEERS              the peers to install (default: "verifiers nemo harbor")
#   PYTHON_VERIFIERS   the Python interpreter for verifiers (default: python3.11, else python3)
#   PYTHON_NEMO        the Python interpreter for NeMo Gym (default: python3.13)
#   PYTHON_HARBOR      the Python interpreter for Harbor (default: python3.12)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/bench
mkdir -p "$cache"

say() { echo "setup-bench-peers: $*" >&2; }

# install NAME INTERPRETER PACKAGE… installs packages in a new virtual environment. If that fails, the
# environment is removed.
install() {
    local name=$1 python=$2 env=$cache/$1
    shift 2
    [[ " ${PEERS-verifiers nemo harbor} " = *" $name "* ]] || return 0
    if [ -x "$env/bin/python" ] && "$env/bin/python" -c "import $module" 2>/dev/null; then
        return
    fi
    if [ -z "$python" ] || ! "$python" -c '' 2>/dev/null; then
        say "$name: ABSENT (its Python version was not found; set PYTHON_${name^^}=/path/to/python)"
        return
    fi
    say "installing $name (takes some minutes)"
    rm -rf "$env"
    if "$python" -m venv "$env" &&
        "$env/bin/python" -m pip install -qq --disable-pip-version-check "$@"; then
        return
    fi
    rm -rf "$env"
    say "$name: ABSENT (pip could not install it: see the output above)"
}

module=verifiers install verifiers \
    "${PYTHON_VERIFIERS:-$(command -v python3.11 || command -v python3 || true)}" verifiers==0.4.0
# NeMo Gym requires the newest patch release of Python 3.13, but runs with any 3.13.
module=nemo_gym install nemo \
    "${PYTHON_NEMO:-$(command -v python3.13 || true)}" --ignore-requires-python nemo-gym==0.7.0
# Harbor starts containers with podman-compose, which is not part of Debian's podman.
module=harbor install harbor \
    "${PYTHON_HARBOR:-$(command -v python3.12 || true)}" harbor==0.26.0 podman-compose==1.5.0
