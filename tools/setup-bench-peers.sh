#!/usr/bin/env bash
# Makes what `make bench` and `make bench-sandboxes` compare with, once: an environment each of
# verifiers, NeMo Gym and Harbor in .cache/bench (2 GB together). Does nothing for one that is there.
# A peer that can't be installed is named, and the bench then prints it as ABSENT: this script still
# ends well. PEERS names those that are wanted.
#
#   PEERS              which (default: "verifiers nemo harbor")
#   PYTHON_VERIFIERS   the interpreter for verifiers (default: python3.11, else python3)
#   PYTHON_NEMO        the interpreter for NeMo Gym (default: python3.13)
#   PYTHON_HARBOR      the interpreter for Harbor (default: python3.12)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/bench
mkdir -p "$cache"

say() { echo "setup-bench-peers: $*" >&2; }

# install NAME INTERPRETER PACKAGE… — into an environment of its own, kept only when all went well.
install() {
    local name=$1 python=$2 env=$cache/$1
    shift 2
    [[ " ${PEERS-verifiers nemo harbor} " = *" $name "* ]] || return 0
    if [ -x "$env/bin/python" ] && "$env/bin/python" -c "import $module" 2>/dev/null; then
        return
    fi
    if [ -z "$python" ] || ! "$python" -c '' 2>/dev/null; then
        say "$name: ABSENT (no interpreter of the version it wants)"
        return
    fi
    say "installing $name (some minutes)"
    rm -rf "$env"
    if "$python" -m venv "$env" &&
        "$env/bin/python" -m pip install -qq --disable-pip-version-check "$@"; then
        return
    fi
    rm -rf "$env"
    say "$name: ABSENT (it could not be installed, see above)"
}

module=verifiers install verifiers \
    "${PYTHON_VERIFIERS:-$(command -v python3.11 || command -v python3 || true)}" verifiers==0.4.0
# It asks for the newest patch release of 3.13, which few machines have; any 3.13 runs it.
module=nemo_gym install nemo \
    "${PYTHON_NEMO:-$(command -v python3.13 || true)}" --ignore-requires-python nemo-gym==0.7.0
# It runs containers by podman-compose, which Debian's podman has no part for.
module=harbor install harbor \
    "${PYTHON_HARBOR:-$(command -v python3.12 || true)}" harbor==0.26.0 podman-compose==1.5.0
