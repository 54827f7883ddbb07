#!/usr/bin/env bash
# Writes requirements/*.txt: exact versions for every platform and Python from 3.11 on, resolved
# from pyproject.toml. `tools/lock.sh` keeps what is locked where it still fits;
# `tools/lock.sh --upgrade` takes the newest of everything. The vllm extra isn't locked: it brings
# its own torch, which depends on the machine.
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

# dev first: core is then held to the same versions.
compile dev --extra dev "$@"
compile core --constraint requirements/dev.txt "$@"
# What deploy/images/Dockerfile installs: what the services of most meshes need.
compile image --extra consul --extra math --extra mcp --extra openai --extra otel \
    --extra structured-outputs --extra xds --extra docker --constraint requirements/dev.txt "$@"
# What `make docs` builds the site with, and what it imports to read docstrings.
compile docs tools/docs/requirements.in --constraint requirements/dev.txt "$@"
