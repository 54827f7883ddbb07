#!/usr/bin/env bash
# Writes requirements/*.txt from pyproject.toml: exact versions for every platform and for Python 3.11
# and newer. `tools/lock.sh` keeps locked versions that still meet pyproject.toml. With
# `tools/lock.sh --upgrade`, every package gets its newest version. The extra `vllm` isn't locked,
# because its version of torch depends on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || .venv/bin/python -m pip install --quiet uv

compile() {
    local out=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --annotation-style line \
        pyproject.toml "$@" --output-file "requirements/$out.txt"
    echo "requirements/$out.txt"
}

# dev is first, because core then uses the same versions.
compile dev --extra dev "$@"
compile core --constraint requirements/dev.txt "$@"
# deploy/images/Dockerfile installs these packages. Most meshes need only these packages.
compile image --extra consul --extra math --extra mcp --extra openai --extra otel \
    --extra structured-outputs --extra xds --extra docker --constraint requirements/dev.txt "$@"
# The packages that `make docs` uses: to build the site, and to import modules for their docstrings.
compile docs tools/docs/requirements.in --constraint requirements/dev.txt "$@"
