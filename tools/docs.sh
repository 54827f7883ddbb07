#!/usr/bin/env bash
# Builds the documentation as a site into dist/docs, and checks its links. Makes an
# environment of its own in .cache/docs/env from the locked requirements, unless there is one that
# was made from the same lock, pyproject.toml and Python.
#
#   PYTHON   the interpreter to build on (default: python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
env=.cache/docs/env
key=$({ "$PYTHON" -VV && cat requirements/docs.txt pyproject.toml; } | sha256sum)
if [ ! -x $env/bin/python ] || [ "$(cat $env/.gymmesh-setup 2>/dev/null)" != "$key" ]; then
    echo "docs: installing the locked requirements into $env"
    rm -rf $env
    # Debian's python3 may lack ensurepip; `make setup` has other ways, and its result makes this one.
    "$PYTHON" -m venv $env 2>/dev/null || { rm -rf $env && make --no-print-directory setup &&
        .venv/bin/python -m venv $env; } || {
        echo "docs: $PYTHON can't make a virtual environment; install Debian's python3-venv" >&2
        exit 1
    }
    pip=("$env/bin/python" -m pip install -qq --disable-pip-version-check --no-deps)
    "${pip[@]}" --require-hashes --requirement requirements/docs.txt
    "${pip[@]}" --no-build-isolation --editable .
    echo "$key" >$env/.gymmesh-setup
fi
exec $env/bin/python -m tools.docs
